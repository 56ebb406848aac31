"""How the model in accuracy_gate/arithmetic_model was made. Needs torch, tokenizers, safetensors; not for the loop."""
