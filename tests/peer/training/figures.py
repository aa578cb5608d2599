"""Figures of matplotlib and plotly, as they are and wrapped."""

import os

os.environ |= {"MPLBACKEND": "Agg", "MPLCONFIGDIR": "mpl"}
import matplotlib.pyplot as plt
import plotly.graph_objects as go
import wandb

figure, axes = plt.subplots(figsize=(2, 1))
axes.plot([1, 2, 3])
chart = go.Figure(go.Scatter(x=[1, 2], y=[3, 4]))
with wandb.init(project="peer", id="figures") as run:
    run.log({"image": wandb.Image(figure), "loss": 1})
    run.log({"chart": chart})
    run.log({"wrapped": wandb.Plotly(chart)})
    run.log({"html": wandb.Html(chart.to_json(), inject=False)})
