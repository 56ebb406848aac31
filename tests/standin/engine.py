"""A stand-in for `vllm serve`, for tests and rehearsals only: no model, no vLLM, answers made from hashes.

It understands the arguments that we pass to vLLM and offers /health, /version, /v1/models, /v1/completions (streamed or
not, text or token IDs, logprobs, return_token_ids, return_tokens_as_token_ids), /tokenize, /detokenize and /metrics in
vLLM 0.32's shapes. It starts in a few hundred milliseconds. Its version, its log and /version say "stand-in". It is
reached only by naming tests/standin/python as EngineSpec.python.

Greedy tokens are a function of the tokens before, so equal prompts get equal answers in any process. Speed comes from a
continuous-batching loop: one token for each running request a step, at most --max-num-seqs running, at most
--max-num-batched-tokens a step; a step takes
    STANDIN_STEP_MS * STANDIN_SLOW * (1.25 if --enforce-eager else 1) * (1 + running / 32) + 0.02 ms * prefilled tokens.
A prefix cache of 16-token blocks is real (off with --no-enable-prefix-caching).

Knobs, by environment (put them in EngineSpec.env):
    STANDIN_STEP_MS=2          time of one decode step
    STANDIN_SLOW=1             factor on it; below 1 is faster
    STANDIN_START_S=0          wait before listening
    STANDIN_ROUNDING=1         where two tokens nearly tie (gap under 0.05) takes the other one: harmless
    STANDIN_WRONG_TOKENS=1     another model's answers: wrong
    STANDIN_CRASH_AT_START=1   traceback, exit code 1
    STANDIN_CRASH_AFTER=N      the same, in the N-th completion request
    STANDIN_HANG_AT_START=1    lives, never listens
    STANDIN_HANG_AFTER=N       from the N-th completion request on no token comes; /health still answers
    STANDIN_OOM=torch|killed   at start: torch's message and exit code 1, or a plain SIGKILL
    STANDIN_REFUSE_FLAG=name   refuses to start when this flag is given, as a pydantic validation error
    STANDIN_STALE=name         serves this model name, not the one asked for
    STANDIN_IGNORE_TERM=1      does not stop when asked
    STANDIN_CHILD=1            starts a child in another session that ignores SIGTERM too
    STANDIN_MEMORY_MB=0        resident ballast
    STANDIN_FAIL_EVERY=N       every N-th completion request is answered with 500
    STANDIN_COMPILE_AFTER=N    logs a JIT compilation in the N-th completion request
    STANDIN_NO_KERNELS=1       its torch has no GPU profiler: traces hold operators and no kernels
--block-size 16 is refused, as by vLLM on a CPU; an unknown flag is refused as argparse does it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from pretend import CACHE_TOKENS, Scheduler, Sequence, detokenize, knob, tokenize
from profiler import Launches, Profiler

VERSION = "0.0.0+standin"


def log(message: str, level: str = "INFO") -> None:
    print(f"{level} {time.strftime('%m-%d %H:%M:%S')} [standin/engine.py] {message}", flush=True)


def log_configuration(args: argparse.Namespace, given: list[str]) -> None:
    """The lines that vLLM 0.32 writes and that the loop reads; every one says stand-in."""
    log(f"stand-in API server version {VERSION}: not vLLM")
    log(f"non-default args: { ({k: v for k, v in vars(args).items() if v != vars(arguments([]))[k]}) }")
    for flag in set(re.findall(r"--([a-z-]+)", " ".join(given))) & {"attention-backend"}:
        log(f"Cannot use AttentionBackendEnum.{args.attention_backend} backend on CPU. ({flag})")
    mode = "NONE: 0" if args.enforce_eager else "DYNAMO_TRACE_ONCE: 2"
    log(
        f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{args.model_tag}', dtype=torch."
        f"{'bfloat16' if args.dtype in (None, 'auto') else args.dtype}, max_seq_len={args.max_model_len}, "
        f"enforce_eager={args.enforce_eager}, kv_cache_dtype={args.kv_cache_dtype or 'auto'}, device_config=cpu, "
        f"seed={args.seed}, enable_prefix_caching={args.enable_prefix_caching}, "
        f"enable_chunked_prefill={args.enable_chunked_prefill}, compilation_config={{'mode': <CompilationMode.{mode}>, "
        f"'compile_ranges_endpoints': [{args.max_num_batched_tokens}], 'cudagraph_mode': <CUDAGraphMode.NONE: 0>}}"
    )
    log(f"VLLM_CPU_OMP_THREADS_BIND='{os.environ.get('VLLM_CPU_OMP_THREADS_BIND', 'auto')}', auto_setup=True")
    if not args.enforce_eager:
        log("Warming up model for the compilation... (stand-in: nothing is compiled)")
    log(f"CPU KV cache size: {CACHE_TOKENS:,} tokens (stand-in)")
    if knob("WRONG_TOKENS"):
        log("PLANTED FAULT active: the stand-in gives another model's answers")


# --- the server ---------------------------------------------------------------------------------------------------


class HttpError(Exception):
    def __init__(self, code: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        self.code, self.body = code, {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Server:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.scheduler = Scheduler(args)
        self.name = os.environ.get("STANDIN_STALE") or args.served_model_name or args.model_tag
        self.requests = 0
        self.profiler = Profiler(args.profiler_config, args.enforce_eager)
        self.scheduler.on_token = Launches(args.enforce_eager).token
        self.started = int(time.time())

    async def serve(self) -> None:
        stepping = asyncio.create_task(self.scheduler.run())
        server = await asyncio.start_server(self.connection, self.args.host, self.args.port)
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        if knob("IGNORE_TERM"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, stop.set)
        log(f"Starting the stand-in on http://{self.args.host}:{self.args.port}")
        log("Application startup complete.")
        async with server:
            await stop.wait()
        stepping.cancel()
        log("Shutting down")
        os._exit(0)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split()
                length = 0
                while (header := (await reader.readline()).decode().strip()) != "":
                    if header.lower().startswith("content-length:"):
                        length = int(header.split(":")[1])
                body = await reader.readexactly(length)
                try:
                    await self.route(method, path.split("?")[0], body, writer)
                except HttpError as error:
                    self.send(writer, error.code, json.dumps(error.body))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    def send(self, writer: asyncio.StreamWriter, code: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        head = f"HTTP/1.1 {code} {'OK' if code == 200 else 'Error'}\r\ncontent-type: {kind}\r\n"
        writer.write(head.encode() + f"content-length: {len(data)}\r\n\r\n".encode() + data)

    async def route(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if method == "GET":
            pages: dict[str, Any] = {"/health": "", "/version": {"version": VERSION, "engine": "stand-in"},
                                     "/v1/models": self.models(), "/metrics": self.metrics(),
                                     "/server_info": self.info()}  # fmt: skip
            if path not in pages:
                raise HttpError(404, "Not Found", "NotFoundError")
            page = pages[path]
            self.send(writer, 200, page if isinstance(page, str) else json.dumps(page),
                      "text/plain" if isinstance(page, str) else "application/json")  # fmt: skip
            return
        if path in ("/start_profile", "/stop_profile") and self.profiler.folder:
            tokens = self.scheduler.counters["generation_tokens"]
            (self.profiler.start if path == "/start_profile" else self.profiler.stop)(tokens)
            self.send(writer, 200, "")
            return
        if not body:
            raise HttpError(404, "Not Found", "NotFoundError")
        try:
            request = json.loads(body)
        except json.JSONDecodeError as error:
            raise HttpError(400, f"JSON decode error: {error}") from error
        if request.get("model") not in (None, self.name):
            raise HttpError(404, f"The model `{request['model']}` does not exist.", "NotFoundError", "model")
        if path == "/tokenize":
            tokens = tokenize(request["prompt"])
            answer = {"count": len(tokens), "max_model_len": self.args.max_model_len, "tokens": tokens,
                      "token_strs": None}  # fmt: skip
            self.send(writer, 200, json.dumps(answer))
        elif path == "/detokenize":
            self.send(writer, 200, json.dumps({"prompt": detokenize(request["tokens"])}))
        elif path == "/v1/completions":
            await self.completions(request, writer)
        else:
            raise HttpError(404, "Not Found", "NotFoundError")

    def models(self) -> dict[str, Any]:
        card = {"id": self.name, "object": "model", "created": self.started, "owned_by": "stand-in",
                "root": self.args.model_tag, "parent": None, "max_model_len": self.args.max_model_len,
                "permission": []}  # fmt: skip
        return {"object": "list", "data": [card]}

    def info(self) -> dict[str, Any]:
        a = self.args
        config = {"scheduler_config": {"max_num_seqs": a.max_num_seqs, "async_scheduling": a.async_scheduling,
                                       "max_num_batched_tokens": a.max_num_batched_tokens,
                                       "enable_chunked_prefill": a.enable_chunked_prefill},
                  "cache_config": {"block_size": a.block_size, "enable_prefix_caching": a.enable_prefix_caching},
                  "parallel_config": {"is_moe_model": False}}  # fmt: skip
        return {"engine": "stand-in", "vllm_config": config, "vllm_env": {}}

    def metrics(self) -> str:
        s, label = self.scheduler, f'{{engine="0",model_name="{self.name}"}}'
        gauges = {"num_requests_running": len(s.running), "num_requests_waiting": len(s.waiting),
                  "kv_cache_usage_perc": s.used()}  # fmt: skip
        names = ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens")
        lines = [f"vllm:{name}{label} {float(value)}" for name, value in gauges.items()]
        lines += [f"vllm:{name}_total{label} {float(s.counters[name])}" for name in names]
        finished = f'{{engine="0",finished_reason="length",model_name="{self.name}"}}'
        lines.append(f"vllm:request_success_total{finished} {float(s.counters['request_success'])}")
        lines.append(f'vllm:cache_config_info{{block_size="{self.args.block_size}",engine="0",'
                     f'enable_prefix_caching="{self.args.enable_prefix_caching}",'
                     f'num_gpu_blocks="{CACHE_TOKENS // self.args.block_size}"}} 1.0')  # fmt: skip
        return "\n".join(lines) + "\n"

    def misbehave(self) -> None:
        """What the knobs ask for at this completion request."""
        n = self.requests
        if (every := int(knob("FAIL_EVERY"))) and n % every == 0:
            raise HttpError(500, "the stand-in was told to fail", "InternalServerError")
        if n == knob("COMPILE_AFTER"):
            log("Triton kernel JIT compilation during inference: standin_kernel", "WARNING")
        if n == knob("CRASH_AFTER"):
            crash("RuntimeError: the stand-in was told to crash in mid-run")
        if knob("HANG_AFTER") and n >= knob("HANG_AFTER"):
            self.scheduler.hung = True

    async def completions(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        self.misbehave()
        prompt = request.get("prompt")
        tokens = tokenize(prompt) if isinstance(prompt, str) else prompt
        if not isinstance(tokens, list) or not tokens or not all(isinstance(token, int) for token in tokens):
            raise HttpError(400, "prompt must be a text or a list of token IDs (the stand-in takes one prompt)")
        most = int(request.get("max_tokens") or 16)
        if len(tokens) + most > self.args.max_model_len:
            longest = self.args.max_model_len
            raise HttpError(400, f"This model's maximum context length is {longest} tokens. However, you requested "
                                 f"{most} output tokens and your prompt contains {len(tokens)}.")  # fmt: skip
        sequence = Sequence(tokens, most)
        self.scheduler.add(sequence)
        head = {"id": f"cmpl-standin-{self.requests}", "object": "text_completion", "created": int(time.time()),
                "model": self.name}  # fmt: skip
        try:
            if request.get("stream"):
                await self.stream(request, sequence, head, writer)
            else:
                steps = [await sequence.out.get() for _ in range(most)]
                made = [step[0] for step in steps]
                ids = bool(request.get("return_token_ids"))
                choice = {"index": 0, "text": detokenize(made), "logprobs": self.logprobs(request, steps, 0),
                          "finish_reason": "length", "stop_reason": None, "token_ids": made if ids else None,
                          "prompt_logprobs": None, "prompt_token_ids": tokens if ids else None,
                          "routed_experts": None}  # fmt: skip
                answer = head | {"choices": [choice], "service_tier": None, "system_fingerprint": None,
                                 "usage": usage(sequence), "kv_transfer_params": None, "ec_transfer_params": None,
                                 "metrics": None}  # fmt: skip
                self.send(writer, 200, json.dumps(answer))
        finally:
            self.scheduler.drop(sequence)

    async def stream(
        self, request: dict[str, Any], sequence: Sequence, head: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                     b"transfer-encoding: chunked\r\n\r\n")  # fmt: skip

        async def event(data: str) -> None:
            line = f"data: {data}\n\n".encode()
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await writer.drain()

        ids, offset = bool(request.get("return_token_ids")), 0
        for number in range(sequence.max_tokens):
            step = await sequence.out.get()
            choice: dict[str, Any] = {"index": 0, "text": detokenize([step[0]]),
                                      "logprobs": self.logprobs(request, [step], offset),
                                      "finish_reason": "length" if number + 1 == sequence.max_tokens else None,
                                      "stop_reason": None,
                                      "prompt_token_ids": sequence.prompt if ids and not number else None,
                                      "token_ids": [step[0]] if ids else None}  # fmt: skip
            if choice["logprobs"]:
                offset += len(choice["logprobs"]["tokens"][0])
            await event(json.dumps(head | {"choices": [choice]}))
        if (request.get("stream_options") or {}).get("include_usage"):
            await event(json.dumps(head | {"choices": [], "usage": usage(sequence)}))
        await event("[DONE]")
        writer.write(b"0\r\n\r\n")

    def logprobs(
        self, request: dict[str, Any], steps: list[tuple[int, float, int, float]], offset: int
    ) -> dict[str, Any] | None:
        """As vLLM: one entry a token, the chosen one first, at most `logprobs` + 1 (the stand-in knows two)."""
        if request.get("logprobs") is None:
            return None
        as_id = bool(request.get("return_tokens_as_token_ids"))

        def show(token: int) -> str:
            return f"token_id:{token}" if as_id else detokenize([token])

        tokens = [show(step[0]) for step in steps]
        offsets = [offset + sum(len(token) for token in tokens[:i]) for i in range(len(tokens))]
        top = [{show(s[0]): s[1], **({show(s[2]): s[3]} if request["logprobs"] > 1 else {})} for s in steps]
        return {"text_offset": offsets, "token_logprobs": [s[1] for s in steps], "tokens": tokens, "top_logprobs": top}


def usage(sequence: Sequence) -> dict[str, Any]:
    prompt, made = len(sequence.prompt), sequence.made
    return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made,
            "prompt_tokens_details": None}  # fmt: skip


# --- the command line ---------------------------------------------------------------------------------------------


def crash(message: str) -> None:
    print(f'Traceback (most recent call last):\n  File "standin/engine.py", line 1, in run\n{message}', flush=True)
    os._exit(1)


def arguments(argv: list[str]) -> argparse.Namespace:
    """The part of vLLM's flags that the loop uses; defaults as of vLLM 0.32 on a CPU."""
    parser = argparse.ArgumentParser(prog="stand-in serve")
    parser.add_argument("model_tag", nargs="?", default="stand-in")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name")
    for name, default in (("max-num-seqs", 256), ("max-num-batched-tokens", 2048), ("max-model-len", 2048),
                          ("block-size", 128), ("seed", 0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("dtype", "attention-backend", "kv-cache-dtype", "compilation-config", "speculative-config",
                 "moe-backend", "kernel-config", "optimization-level", "gpu-memory-utilization",
                 "profiler-config"):  # fmt: skip
        parser.add_argument(f"--{name}")
    for name, on in (("enforce-eager", False), ("enable-prefix-caching", True), ("enable-chunked-prefill", True),
                     ("enable-log-requests", False), ("disable-log-stats", False),
                     ("async-scheduling", False)):  # fmt: skip
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=on)
    return parser.parse_args(argv[1:] if argv[:1] == ["serve"] else argv)


def main() -> None:
    given = sys.argv[1:]
    args = arguments(given)
    log_configuration(args, given)
    refused = os.environ.get("STANDIN_REFUSE_FLAG")
    if args.block_size == 16 or (refused and any(part.split("=")[0] == f"--{refused}" for part in given)):
        crash("pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
              f"  Value error, the stand-in refuses {refused or 'block-size 16'}")  # fmt: skip
    if knob("CRASH_AT_START"):
        crash("RuntimeError: the stand-in was told to crash at start")
    match os.environ.get("STANDIN_OOM"):
        case "torch":
            crash("RuntimeError: [enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you "
                  "tried to allocate 1099511627776 bytes. Error code 12 (Cannot allocate memory)")  # fmt: skip
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    if knob("CHILD"):
        sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
        subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=True)
    if knob("IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ballast = bytearray(os.urandom(1 << 20)) * int(knob("MEMORY_MB"))
    time.sleep(1e6 if knob("HANG_AT_START") else knob("START_S"))
    asyncio.run(Server(args).serve())
    del ballast


if __name__ == "__main__":
    main()
