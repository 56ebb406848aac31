"""Made-up nights for tests: written by the real Ledger, under a clock that this file winds. No engine ever ran, and no
number here was measured; each night's name and first warning say so."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from contracts import (
    Card,
    Change,
    EngineSettings,
    Evidence,
    Failure,
    FailureKind,
    GateResult,
    GateRule,
    Hypothesis,
    LaunchRecord,
    Lever,
    Limit,
    MeasuredSheet,
    Measurement,
    NightConfig,
    NoiseFloor,
    Objective,
    PathEvidence,
    Probe,
    Rate,
    SumsRule,
    Verdict,
    VerdictWord,
    Workload,
)
from ledger import schema
from ledger.log import Ledger

MODEL = "/models/made-up-135m"
SECRET = "0123456789abcdef" * 2


def hypothesis(key: str, before: Any, after: Any, gain: float = 1.1, **more: Any) -> Hypothesis:
    """One engine flag, with all that a reader would say."""
    lever = more.pop("lever", Lever.ENGINE_FLAG)
    return Hypothesis(
        change=Change(lever=lever, key=key, before=before, after=after),
        proposer=more.pop("proposer", "flags_away_from_default"),
        why=more.pop("why", f"{key} is not the engine's default here"),
        evidence=(Evidence(source="engine log", detail=f"{key}={before}"),),
        predicted_gain=gain,
        probability=0.6,
        cost_s=120,
        score=math.log(gain) * 0.6 / 120,
        **more,
    )


EAGER = hypothesis("enforce-eager", True, None, 1.15, bound=1.4, why="eager mode leaves compilation off")
SEQS = hypothesis("max-num-seqs", 4, 32, 1.8, why="16 streams wait for 4 places: 9.6 of them queue on average")
NOTHING = hypothesis(
    "attention-backend", None, "FLASH_ATTN", 1.05, planted=True, proposer="night file", why="planted: does nothing"
)
REFUSED = hypothesis("block-size", None, 16, 1.05, planted=True, proposer="night file", why="planted: is refused")
WRONG = hypothesis(
    "NIGHTGATE_PLANTED_SKIP_LAYER", None, "11", 1.1, planted=True, proposer="night file",
    lever=Lever.ENVIRONMENT, why="planted: skips a layer, so answers are wrong but faster",
)  # fmt: skip
TRADE = hypothesis(
    "max-num-batched-tokens", None, 128, 1.05, planted=True, proposer="night file", why="planted: TTFT for TPOT"
)
UNSURE = hypothesis("mode", None, 2, 1.03, lever=Lever.COMPILATION, why="a lower compile level starts faster")
NOISY = hypothesis("VLLM_CPU_OMP_THREADS_BIND", None, "0-1", 1.1, lever=Lever.ENVIRONMENT, why="threads wander")


def config(minutes: float = 25) -> NightConfig:
    return NightConfig(
        name="made-up-night",
        minutes=minutes,
        engine=EngineSettings(python="python", model=MODEL, flags={"enforce-eager": True, "max-num-seqs": 4}),
        workload=Workload(
            name="chat-16-streams",
            concurrency=16,
            requests=48,
            warmup_requests=16,
            input_tokens=(64, 128),
            output_tokens=(32, 64),
            objective=Objective(limits=(Limit(metric="tpot_ms_p95", at_most=90),)),
        ),
        gate=GateRule(gsm8k=SumsRule(questions="arithmetic:held_out_stories", count=200)),
    )


class MadeUpNight:
    """Writes events under its own clock; each method is one thing that a night does."""

    def __init__(self, folder: Path, vllm: str = "0.32.0", minutes: float = 25, seed: int = 1) -> None:
        self.folder, self.vllm, self.minutes = folder, vllm, minutes
        self.now = datetime(2026, 11, 29, 1, 30, tzinfo=UTC)
        self.random = random.Random(seed)
        self.launches, self.speed = 0, 165.0  # made up
        with self.clock():
            self.ledger = Ledger.create(folder)

    @contextmanager
    def clock(self) -> Iterator[None]:
        with mock.patch("ledger.log._now", lambda: self.now.isoformat(timespec="milliseconds")):
            yield

    def add(self, kind: str, data: Any, after_s: float = 0.05) -> None:
        self.now += timedelta(seconds=after_s)
        with self.clock():
            self.ledger.append(kind, data)

    @contextmanager
    def stage(self, name: str, experiment_id: str | None = None) -> Iterator[None]:
        began = self.now
        self.add("stage_entered", schema.StageEntered(stage=name, experiment_id=experiment_id))
        yield
        seconds = (self.now - began).total_seconds()
        self.add("stage_left", schema.StageLeft(stage=name, experiment_id=experiment_id, seconds=seconds))

    def start(self) -> None:
        self.add(
            "night_started",
            schema.NightStarted(
                config=config(self.minutes),
                card=Card(
                    arch="x86_64", kind="cpu", name="Made-up CPU, 2 cores", memory_bytes=24 << 30, compute_units=2,
                    source="made up",
                ),
                versions={
                    "nightgate": "0.1.0", "commit": "0000000", "python": "3.11.7", "vllm": self.vllm,
                    "torch": "2.13.0+cpu", "kernel": "6.1",
                },
                guarded_files={"judge/decide.py": "0" * 64},
            ),
        )  # fmt: skip
        self.add(
            "warned", schema.Warned(message="this night is made up for tests: no engine ran, nothing was measured")
        )
        rate = Rate(value=24.0, lowest=22.0, highest=25.0, repeats=20)
        copied = MeasuredSheet(arch="x86_64", card="CPU", copy_gb_s=rate, how="made up", at="2026-11-29T22:00:00+00:00")
        self.add("card_measured", schema.CardMeasured(measured=copied, seconds=4.0))
        self.add("gate_sealed", schema.GateSealed(secret_sha256=sha256(SECRET.encode()).hexdigest()))

    def launch(self, arm: Literal["A", "B"], experiment_id: str | None = None, ready_s: float = 21.0) -> LaunchRecord:
        self.launches += 1
        record = LaunchRecord(
            launch_id=f"L{self.launches:03d}", spec_id=f"spec-{arm}", pid=4000 + self.launches, pid_started=1.0,
            port=18000, nonce="n", log_path=f"artifacts/launches/L{self.launches:03d}/engine.log",
        )  # fmt: skip
        self.add("launch_started", schema.LaunchStarted(launch=record, arm=arm, experiment_id=experiment_id), 0.3)
        ready = record.model_copy(update={"ready_s": ready_s, "rss_bytes": 4_700_000_000})
        self.add("launch_ready", schema.LaunchReady(launch=ready, experiment_id=experiment_id), ready_s)
        return ready

    def stop(self, *launches: LaunchRecord) -> None:
        for record in launches:
            self.add("launch_stopped", schema.LaunchStopped(launch_id=record.launch_id, seconds=1.5, forced=False), 1.6)

    def measure(
        self,
        launch: LaunchRecord,
        arm: Literal["A", "B"],
        speed: float,
        experiment_id: str | None = None,
        purpose: Literal["aa", "experiment", "confirm", "stock"] = "experiment",
        void: tuple[str, ...] = (),
        run: int = 0,
    ) -> None:
        rate = speed * math.exp(self.random.gauss(0, 0.012))
        metrics: dict[str, float | None] = {
            "output_tokens_per_s": round(rate, 2), "ttft_ms_p50": 380.0, "tpot_ms_p95": round(16e3 / rate, 2),
            "itl_ms_p99": None,
        }  # fmt: skip
        measurement = Measurement(
            launch_id=launch.launch_id, arm=arm, launch_pair=0, run=run, prompt_seed=run, window_s=14.0, completed=48,
            failed=0, metrics=metrics, void_reasons=void,
        )  # fmt: skip
        measured = schema.Measured(measurement=measurement, experiment_id=experiment_id, purpose=purpose)
        self.add("measured", measured, 16.0)

    def baseline(self) -> None:
        with self.stage("baseline"):
            a, b = self.launch("A"), self.launch("B")
            for run in range(2):
                self.measure(a, "A", self.speed, purpose="aa", run=run)
                self.measure(b, "B", self.speed, purpose="aa", run=run)
            self.add("gated", schema.Gated(result=gate("pass", "24 of 24 answers repeat in a fresh process")), 9)
            referenced = schema.GateReferenced(
                path="artifacts/gate/reference.json", sha256="0" * 64, prompts_hash="p" * 8, seconds=40.0,
                questions="arithmetic:held_out_stories", questions_hash="q" * 8, score="199 of 200 right (99.5 %)",
            )  # fmt: skip
            self.add("gate_referenced", referenced)
            self.stop(a, b)
            noise = NoiseFloor(
                metric="output_tokens_per_s", launch_sd=0.011, launch_df=2, run_sd=0.014, pairs=(0.012, -0.009),
                tokens_repeat={"alone": True, "concurrent": False},
            )  # fmt: skip
            self.add(
                "baseline",
                schema.Baseline(
                    metrics={"output_tokens_per_s": self.speed, "ttft_ms_p50": 380.0, "tpot_ms_p95": 85.0},
                    noise=noise, gate_mode="alone: one request at a time", arms="twin",
                    arms_reason="two engines need 9.4 GB and 21 GB are free", seconds=130,
                ),
            )  # fmt: skip

    def research(self, *found: Hypothesis) -> None:
        with self.stage("research"):
            dropped = ("gpu-memory-utilization: this engine runs on a CPU",)
            self.add("researched", schema.Researched(hypotheses=found, dropped=dropped), 2)

    def profile(self) -> None:
        with self.stage("profile"):
            self.add("profiled", schema.Profiled(findings={"mean_waiting": 9.6, "peak_running": 4}), 12)

    def begin(self, number: int, tried: Hypothesis) -> str:
        experiment_id = f"e{number:02d}-{tried.id[:6]}"
        with self.stage("pick", experiment_id):
            self.add(
                "experiment_started",
                schema.ExperimentStarted(
                    experiment_id=experiment_id, hypothesis=tried, try_number=number, alpha=0.05 / number / 2
                ),
            )
        return experiment_id

    def experiment(
        self,
        number: int,
        tried: Hypothesis,
        verdict: Verdict,
        true_ratio: float = 1.0,
        path: Literal["proven", "absent", "unknown"] = "proven",
        wrong: bool = False,
        void: tuple[str, ...] = (),
        seconds: float = 118.0,
    ) -> str:
        e = self.begin(number, tried)
        with self.stage("launch", e):
            a, b = self.launch("A", e), self.launch("B", e)
        with self.stage("prove_path", e):
            probe = Probe(kind="log_line", pattern=f"{tried.change.key}={{after}}", source="vLLM's start-up log")
            said = {
                "proven": f"the log of B says {tried.change.key}, the log of A does not",
                "absent": f"both logs say the same about {tried.change.key}: the engine took it and did nothing",
                "unknown": "no line in the log tells",
            }[path]
            seen = "line 41" if path == "proven" else None
            evidence = PathEvidence(outcome=path, probe=probe, seen_in_b=seen, reason=said)
            self.add("path_evidence", schema.PathProven(evidence=evidence, experiment_id=e), 2)
        if path == "proven":
            with self.stage("quick_gate", e):
                result = (
                    gate("fail", "7 of 8 answers part, the first at token 3 where the top-2 gap is 4.1 nats")
                    if wrong
                    else gate("pass", "8 of 8 answers equal")
                )
                self.add("gated", schema.Gated(result=result, experiment_id=e), 11)
            if not wrong:
                with self.stage("measure", e):
                    for run in range(2):
                        self.measure(a, "A", self.speed, e, run=run, void=void)
                        self.measure(b, "B", self.speed * true_ratio, e, run=run, void=void)
        self.judge(e, verdict, seconds)
        self.stop(a, b)
        return e

    def judge(self, e: str, verdict: Verdict, seconds: float) -> None:
        with self.stage("judge", e):
            self.add("judged", schema.Judged(experiment_id=e, verdict=verdict, seconds=seconds))
        if verdict.word == VerdictWord.KEEP:
            self.speed *= verdict.ratio or 1.0
            self.add("kept", schema.Kept(experiment_id=e, commit=f"{e}-commit", spec_id=f"spec-{e}"))
        else:
            self.add("reverted", schema.Reverted(experiment_id=e, commit="base-commit", spec_id="spec-A"))

    def refused(self, number: int, tried: Hypothesis) -> str:
        e = self.begin(number, tried)
        tail = (
            "INFO 11-29 01:41:07 [api_server.py:1995] vLLM API server version 0.32.0",
            'ValueError: block_size must be a multiple of 32, got <16> & "stopped"',
        )
        failure = Failure(kind=FailureKind.REFUSED_CONFIGURATION, reason=tail[-1], log_tail=tail)
        with self.stage("launch", e):
            self.add(
                "launch_failed", schema.LaunchFailed(launch_id="L090", failure=failure, experiment_id=e, seconds=8), 8
            )
        reason = f"the engine refused to start with it: {tail[-1]}"
        self.judge(e, Verdict(word=VerdictWord.FAILED, reason=reason), 9)
        return e

    def confirm(self, word: VerdictWord, ratio: float, interval: tuple[float, float], reason: str) -> None:
        with self.stage("confirm"):
            a, b = self.launch("A"), self.launch("B", ready_s=64)
            self.measure(a, "A", 165, purpose="confirm")
            self.measure(b, "B", 165 * ratio, purpose="confirm")
            self.stop(a, b)
            verdict = Verdict(
                word=word, reason=reason, metric="output_tokens_per_s", ratio=ratio, interval=interval, confidence=0.95,
                launch_pairs=2,
            )  # fmt: skip
            self.add(
                "confirmed",
                schema.Confirmed(
                    verdict=verdict,
                    base={"output_tokens_per_s": 165.0, "tpot_ms_p95": 85.0, "ttft_ms_p50": 380.0},
                    final={"output_tokens_per_s": 165.0 * ratio, "tpot_ms_p95": 51.0, "ttft_ms_p50": 402.0},
                    stock={"output_tokens_per_s": 322.0},
                    gates=(gate("pass", "24 of 24 answers equal or parted at a near tie", 31),),
                ),
            )

    def finish(self, outcome: Literal["done", "budget", "interrupted", "problem"], reason: str, code: int = 0) -> None:
        self.add("night_finished", schema.NightFinished(outcome=outcome, reason=reason, exit_code=code), 1)
        self.ledger.close()


def gate(outcome: Literal["pass", "fail", "inconclusive", "not_run"], reason: str, seconds: float = 11) -> GateResult:
    return GateResult(
        check="token_ids", outcome=outcome, mode="alone: one request at a time", reason=reason, seconds=seconds,
        power="one changed layer of 30 would part 24 of 24 answers", statistic={"equal": 8, "of": 8},
    )  # fmt: skip
