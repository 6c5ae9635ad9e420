"""The recipe of the toy model in `assets/model`: text, tokenizer, training, evaluation. See README.md here."""
