"""Lines that a logger hands over, beside rows."""

import wandb

run = wandb.init(project="peer", id="loggers")
run.write_logs("first line")
run.write_logs("second\nwith a break")
run.log({"loss": 1})
run.write_logs("")
run.write_logs("last \u00fc")
run.finish()
