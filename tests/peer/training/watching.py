"""A model under `watch`, and values as torch gives them."""

import torch
import wandb

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(3, 2)
with wandb.init(project="peer", id="watching", config={"lr": torch.tensor(0.5), "shape": torch.Size([2, 3])}) as run:
    run.log({"float": torch.tensor(0.1), "half": torch.tensor(0.1, dtype=torch.float16), "int": torch.tensor(7)})
    run.log({"bfloat": torch.tensor(0.1, dtype=torch.bfloat16), "flag": torch.tensor(True), "one": torch.tensor([2.5])})
    run.log({"grad": torch.tensor(1.5, requires_grad=True)})
    run.log({"list": torch.arange(4), "grid": torch.ones(2, 2), "nan": torch.tensor(float("nan"))})
    run.log({"inside": [torch.tensor(1), torch.tensor(2.5)], "nested": {"a": torch.tensor(3)}})
    run.log({"many": torch.linspace(0, 1, 64)})
    run.watch(model, log_freq=1)
    for i in range(3):
        loss = model(torch.ones(1, 3)).square().sum()
        loss.backward()
        run.log({"loss": loss.item(), "i": i})
    run.unwatch(model)
    run.summary["best"] = torch.tensor(0.25)
