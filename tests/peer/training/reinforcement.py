"""Proximal policy optimisation on a corridor, in the manner of single-file implementations."""

import argparse

import torch
import wandb
from torch import nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--total-timesteps", type=int, default=1024)
parser.add_argument("--learning-rate", type=float, default=1e-2)
parser.add_argument("--num-steps", type=int, default=128)
parser.add_argument("--update-epochs", type=int, default=3)
parser.add_argument("--clip-coef", type=float, default=0.2)
parser.add_argument("--gamma", type=float, default=0.95)
args = parser.parse_args([])
torch.manual_seed(args.seed)
torch.set_num_threads(1)
run_name = f"corridor__ppo__{args.seed}"
wandb.init(project="rl", entity="team", id="rl", config=vars(args), name=run_name, save_code=False)
wandb.define_metric("global_step")
wandb.define_metric("*", step_metric="global_step")


class Corridor:
    """Seven cells; the right end pays 1, each step costs 0.05."""

    def reset(self):
        self.cell, self.length, self.paid = 3, 0, 0.0
        return self.seen()

    def seen(self):
        return nn.functional.one_hot(torch.tensor(self.cell), 7).float()

    def step(self, action):
        self.cell, self.length = max(self.cell + 2 * action - 1, 0), self.length + 1
        reward = 1.0 if self.cell == 6 else -0.05
        self.paid += reward
        return self.seen(), reward, self.cell == 6 or self.length == 50


environment = Corridor()
actor, critic = (nn.Sequential(nn.Linear(7, 16), nn.Tanh(), nn.Linear(16, out)) for out in (2, 1))
weights = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(weights, lr=args.learning_rate, eps=1e-5)
seen, global_step = environment.reset(), 0
updates = args.total_timesteps // args.num_steps
for update in range(updates):
    optimizer.param_groups[0]["lr"] = (1 - update / updates) * args.learning_rate
    states, actions, logprobs, rewards, ends = [], [], [], [], []
    for _ in range(args.num_steps):
        global_step += 1
        with torch.no_grad():
            policy = Categorical(logits=actor(seen))
            action = policy.sample()
        states.append(seen)
        actions.append(action)
        logprobs.append(policy.log_prob(action))
        seen, reward, done = environment.step(action.item())
        rewards.append(reward)
        ends.append(done)
        if done:
            episode = {"charts/episodic_return": environment.paid, "charts/episodic_length": environment.length}
            wandb.log(episode | {"global_step": global_step})
            seen = environment.reset()
    value, returns = critic(seen).item(), []
    for reward, done in zip(reversed(rewards), reversed(ends), strict=True):
        value = reward + args.gamma * value * (not done)
        returns.insert(0, value)
    states, actions, logprobs, returns = map(torch.stack, (states, actions, logprobs, list(map(torch.tensor, returns))))
    clipped = []
    for _ in range(args.update_epochs):
        policy, values = Categorical(logits=actor(states)), critic(states).flatten()
        advantages = returns - values.detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = (policy.log_prob(actions) - logprobs).exp()
        clipped.append(((ratio - 1).abs() > args.clip_coef).float().mean().item())
        near = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
        policy_loss = -torch.min(advantages * ratio, advantages * near).mean()
        value_loss = 0.5 * (values - returns).square().mean()
        entropy = policy.entropy().mean()
        optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss - 0.01 * entropy).backward()
        nn.utils.clip_grad_norm_(weights, 0.5)
        optimizer.step()
    losses = {
        "losses/policy_loss": policy_loss.item(),
        "losses/value_loss": value_loss.item(),
        "losses/entropy": entropy.item(),
    }
    explained = 1 - (returns - values.detach()).var() / returns.var()
    more = {"losses/clipfrac": sum(clipped) / len(clipped), "losses/explained_variance": explained.numpy()}
    wandb.log(losses | more | {"charts/learning_rate": optimizer.param_groups[0]["lr"], "global_step": global_step})
wandb.finish()
