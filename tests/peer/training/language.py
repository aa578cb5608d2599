"""A small GPT on a made-up text, in the manner of small GPT trainers: micro-batches, warm-up and decay, evaluations."""

import math

import torch
import wandb
from torch import nn
from torch.nn import functional

torch.manual_seed(1337)
torch.set_num_threads(1)
batch_size, block_size, n_layer, n_head, n_embd = 8, 32, 2, 2, 32
max_iters, eval_interval, eval_iters, log_interval = 40, 10, 4, 5
learning_rate, min_lr, warmup_iters, gradient_accumulation_steps, grad_clip = 1e-2, 1e-3, 5, 2, 1.0
plain = (int, float, bool, str)
config = {name: value for name, value in globals().items() if not name.startswith("_") and isinstance(value, plain)}

text = "".join("the cat sat on the mat. " if i % 3 else "a dog ran to the log. " for i in range(300))
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])
parts = {"train": data[: int(0.9 * len(data))], "val": data[int(0.9 * len(data)) :]}


def get_batch(split):
    starts = torch.randint(len(parts[split]) - block_size, (batch_size,)).tolist()
    cut = torch.stack([parts[split][start : start + block_size + 1] for start in starts])
    return cut[:, :-1], cut[:, 1:]


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(len(letters), n_embd), nn.Embedding(block_size, n_embd)
        layer = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(n_embd, len(letters))

    def forward(self, tokens, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.blocks(self.token(tokens) + self.place.weight[: tokens.shape[1]], mask=mask, is_causal=True)
        return functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


@torch.no_grad()
def estimate_loss():
    return {split: torch.tensor([model(*get_batch(split)) for _ in range(eval_iters)]).mean() for split in parts}


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    decay = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * decay)) * (learning_rate - min_lr)


wandb.init(project="owt", name="gpt-mini", id="gpt", config=config)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
for iter_num in range(max_iters + 1):
    lr = get_lr(iter_num)
    optimizer.param_groups[0]["lr"] = lr
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        wandb.log({"iter": iter_num, "train/loss": losses["train"], "val/loss": losses["val"], "lr": lr, "mfu": -100.0})
    for _ in range(gradient_accumulation_steps):
        loss = model(*get_batch("train")) / gradient_accumulation_steps
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        wandb.log({"iter": iter_num, "batch/loss": loss.item() * gradient_accumulation_steps, "batch/norm": norm})
wandb.run.summary["tokens"] = max_iters * gradient_accumulation_steps * batch_size * block_size
wandb.finish()
