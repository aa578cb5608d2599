"""A convolutional network on digits drawn here, as the first example of many a repository: epochs, batches, a test set."""

import torch
import wandb
from torch import nn, optim
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
config = {"lr": 0.1, "gamma": 0.7, "batch_size": 32, "epochs": 2, "log_interval": 4}


def digits(count):
    """Two kinds of noisy bars, 12 x 12: upright ones are 1, lying ones are 0."""
    labels = torch.randint(0, 2, (count,))
    pictures = 0.3 * torch.rand(count, 1, 12, 12)
    for picture, label, place in zip(pictures, labels, torch.randint(2, 10, (count,)), strict=True):
        picture[0].transpose(0, int(label))[place] += 0.7
    return TensorDataset(pictures, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.out = nn.Linear(8 * 5 * 5, 2)

    def forward(self, x):
        return self.out(functional.max_pool2d(functional.relu(self.norm(self.conv(x))), 2).flatten(1))


wandb.init(project="vision", id="vision", config=config, tags=["cnn"])
config = wandb.config
train = DataLoader(digits(256), batch_size=config.batch_size, shuffle=True)
test = DataLoader(digits(128), batch_size=64, num_workers=1)
model = Net()
optimizer = optim.SGD(model.parameters(), lr=config.lr)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=config.gamma)
wandb.config.update({"parameters": sum(p.numel() for p in model.parameters())})
for epoch in range(1, config.epochs + 1):
    model.train()
    for batch, (pictures, labels) in enumerate(train):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        if batch % config.log_interval == 0:
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            wandb.log({"train/loss": loss, "train/grad_norm": norm, "epoch": epoch, "lr": scheduler.get_last_lr()[0]})
    model.eval()
    with torch.no_grad():
        outputs = [(model(pictures), labels) for pictures, labels in test]
    losses = torch.stack([functional.cross_entropy(*output) for output in outputs])
    right = torch.cat([logits.argmax(1) == labels for logits, labels in outputs])
    wandb.log(
        {"test/loss": losses.mean(), "test/accuracy": right.float().mean(), "test/right": right.sum(), "epoch": epoch}
    )
    wandb.log(
        {"weights/conv": model.conv.weight.data, "weights/bias": model.out.bias.data, "epoch": epoch}, commit=False
    )
    scheduler.step()
wandb.summary["accuracy"] = right.float().mean().item()
wandb.finish()
