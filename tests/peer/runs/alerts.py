"""Alerts of each level, and the mark that the scheduler takes the machine away."""

import datetime as dt

import wandb

run = wandb.init(project="peer", id="alerts")
run.alert("plain", "text")
run.alert(title="warning", text="a\nb", level=wandb.AlertLevel.WARN, wait_duration=300)
run.alert("error", "t\u00e9xt", level="ERROR", wait_duration=dt.timedelta(minutes=2, milliseconds=5))
run.alert("plain", "again")
wandb.alert("module", "text", level="INFO", wait_duration=0)
run.log({"loss": 1})
run.mark_preempting()
run.finish(exit_code=1)
