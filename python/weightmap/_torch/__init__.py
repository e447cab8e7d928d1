"""torch's objects over mapped files. Its modules import torch, so nothing else imports them at once."""
