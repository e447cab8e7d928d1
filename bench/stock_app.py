"""examples/serving/gunicorn_app.py with a model of stock from_pretrained(), to compare with."""
import weightmap
from transformers import AutoModelForCausalLM

weightmap.transformers.load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
from gunicorn_app import app
