"""Pure functions of a Run: the same Run, the same answer. Nothing here reads a clock, a file or a device.

`summary.summarize` every figure; `verdict.judge` the verdict; `document.deadline_document` the JSON contract;
`compare.compare` two Runs; `attribute` what late steps were caused by; `coldstart` what came before the usual pace.
"""
