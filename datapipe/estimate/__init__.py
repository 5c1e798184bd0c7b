"""
What a training run would need, as tables of terms: each with its formula and its source, each may be replaced.

quantities.py  "7B", "80GB", "400Gbit/s": numbers with units that are checked
terms.py       a table of terms: adds up, says what dominates, takes other values
shape.py       a model's shape and its tensors, counted exactly; read.py finds one in files of several kinds
flops.py       every matrix product, beside 6ND and the formulas of PaLM and Hoffmann et al.
setup.py       how a model would be trained: types, optimizer, splits over devices
activations.py what a layer keeps for the backward pass
memory.py      all of a device's memory, at each pipeline stage
measure.py     the same of the bundled model, measured
parallel.py    bytes, seconds, bubbles and imbalance of one step
search.py      splits of N devices, ranked; what to change first when a model does not fit
constants.py   the loss surface: published constants by name, the optimum of a budget
runs.py        runs from a file; fitting.py a surface through them; resample.py how far it can be trusted
supply.py      the targets that a build offers; lifetime.py serving and repeats: what they change
scaling.py     plans of N and D, inside or outside of what was ever run; pictures.py draws them
claim.py       what "more data, better model" must answer; questions.py one function a question
"""
