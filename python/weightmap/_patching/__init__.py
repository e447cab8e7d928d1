"""torch.load, torch.save and safetensors' safe_open by weightmap, for a block."""
