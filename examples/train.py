"""A small real training: logistic regression by mini-batch gradient descent, on generated data, in plain Python.

Logs each step with runferry, and system metrics each second. Writes nothing but its run directory:

    python examples/train.py --dir /tmp/somewhere --steps 300
"""

from __future__ import annotations

import argparse
import math
import random
import time

import runferry

FEATURES = 24
Point = tuple[list[float], int]


def generate(count: int, rng: random.Random) -> list[Point]:
    """Two overlapping clouds of points: `count` pairs of features and class."""
    points: list[Point] = []
    for _ in range(count):
        label = rng.randrange(2)
        points.append(([rng.gauss(0.35 * label * (1 + i % 3), 1.0) for i in range(FEATURES)], label))
    return points


def predict(weights: list[float], bias: float, features: list[float]) -> float:
    """Probability of class 1."""
    score = bias + sum(w * x for w, x in zip(weights, features, strict=True))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


def evaluate(weights: list[float], bias: float, points: list[Point]) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    loss, right = 0.0, 0
    for features, label in points:
        p = predict(weights, bias, features)
        loss -= math.log(max(1e-12, p if label else 1 - p))
        right += (p >= 0.5) == bool(label)
    return loss / len(points), right / len(points)


def main() -> None:
    """Train, and log what a training logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=".", help="where the wandb/ directory is made")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-seconds", type=float, default=0.03, help="a step takes at least this long")
    parser.add_argument("--lr", type=float, default=0.4)
    arguments = parser.parse_args()

    rng = random.Random(7)
    training, validation = generate(4000, rng), generate(500, rng)
    weights, bias = [0.0] * FEATURES, 0.0

    with runferry.init(
        project="demo",
        name="logistic regression",
        dir=arguments.dir,
        config={"lr": arguments.lr, "batch_size": 1024, "steps": arguments.steps, "model": {"features": FEATURES}},
        tags=["example"],
        settings=runferry.Settings(sample_interval=1.0, console="wrap"),
    ) as run:
        for step in range(arguments.steps):
            began = time.perf_counter()
            rate = run.config["lr"] * 0.5 * (1 + math.cos(math.pi * step / arguments.steps))
            batch = rng.sample(training, run.config["batch_size"])
            slope, slope_bias, loss, right = [0.0] * FEATURES, 0.0, 0.0, 0
            for features, label in batch:
                p = predict(weights, bias, features)
                error = p - label
                loss -= math.log(max(1e-12, p if label else 1 - p))
                right += (p >= 0.5) == bool(label)
                slope_bias += error
                slope = [s + error * x for s, x in zip(slope, features, strict=True)]
            weights = [w - rate * s / len(batch) for w, s in zip(weights, slope, strict=True)]
            bias -= rate * slope_bias / len(batch)
            time.sleep(max(0.0, arguments.step_seconds - (time.perf_counter() - began)))

            row = {
                "loss": loss / len(batch),
                "accuracy": right / len(batch),
                "lr": rate,
                "grad_norm": math.sqrt(sum(s * s for s in slope)) / len(batch),
                "examples_per_second": len(batch) / (time.perf_counter() - began),
            }
            if step % 25 == 24:
                val_loss, val_accuracy = evaluate(weights, bias, validation)
                row["val"] = {"loss": val_loss, "accuracy": val_accuracy}
                print(f"step {step + 1:4d}  loss {row['loss']:.3f}  validation accuracy {val_accuracy:.3f}")
            run.log(row)
        run.summary["best_accuracy"] = val_accuracy


if __name__ == "__main__":
    main()
