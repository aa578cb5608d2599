"""The charts of `plot`: each is a table and a panel."""

import wandb

with wandb.init(project="peer", id="plots") as run:
    table = wandb.Table(columns=["x", "y"], data=[[0, 1], [1, 4], [2, 9]])
    run.log({"line": wandb.plot.line(table, "x", "y", title="A line", stroke="s"), "loss": 1})
    run.log({"scatter": wandb.plot.scatter(table, "x", "y", title="Points")})
    run.log({"bar": wandb.plot.bar(wandb.Table(columns=["a", "b"], data=[["p", 1], ["q", 2]]), "a", "b", title="Bars")})
    run.log({"hist": wandb.plot.histogram(wandb.Table(columns=["v"], data=[[1], [2], [2]]), "v")})
    run.log({"series": wandb.plot.line_series([0, 1, 2], [[1, 2, 3], [3, 2, 1]], keys=["up", "down"], xname="t")})
    run.log({"matrix": wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0], class_names=["a", "b"])})
    run.log({"own": wandb.plot_table("user/preset", table, {"x": "x", "y": "y"}, {"title": "Own"})})
    run.log({"nested": {"line": wandb.plot.line(table, "x", "y")}})
