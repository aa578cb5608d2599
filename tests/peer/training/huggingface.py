"""A `Trainer` with a tiny BERT, evaluations and a prediction: `report_to="wandb"` for the peer, a callback for us."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import wandb
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(0)
ours = wandb.__name__ == "runferry"
if ours:
    from runferry.writer.integrations.huggingface import RunferryCallback


def examples(count):
    tokens = torch.randint(5, 50, (count, 12))
    return [{"input_ids": row, "labels": (row > 27).sum() > 6} for row in tokens]


train, evaluation = examples(96), examples(32)
for example in [*train, *evaluation]:
    example["labels"] = example["labels"].long()
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
)
arguments = TrainingArguments(
    output_dir="out",
    run_name="tiny-bert",
    report_to="none" if ours else "wandb",
    num_train_epochs=2,
    per_device_train_batch_size=8,
    logging_steps=4,
    eval_strategy="epoch",
    save_strategy="no",
    learning_rate=1e-2,
    warmup_steps=3,
    seed=7,
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(
    BertForSequenceClassification(config),
    arguments,
    train_dataset=train,
    eval_dataset=evaluation,
    compute_metrics=lambda given: {"accuracy": float((given.predictions.argmax(1) == given.label_ids).mean())},
    callbacks=[RunferryCallback(id="hf")] if ours else [],
)
os.environ["WANDB_RUN_ID"] = "hf"
trainer.train()
trainer.evaluate()
trainer.predict(evaluation)
wandb.finish()
