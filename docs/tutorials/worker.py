
import sys
import weightmap

model = weightmap.open("model.pt").numpy()
if sys.argv[1] == "copy":
    model = {name: array.copy() for name, array in model.items()}
total = sum(float(array.sum()) for array in model.values())
print("ready", flush=True)
sys.stdin.read()
