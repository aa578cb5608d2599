"""Two segments of one run: the second one resumes the first."""

import wandb

for first in (0, 5):
    with wandb.init(project="peer", id="resumed", resume="allow", config={f"part{first}": first}) as run:
        for i in range(5):
            run.log({"loss": first + i})
