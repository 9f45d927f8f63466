"""The protocols of contract.py together: mypy checks the modules of each model against them, in
tests/models/MODEL/contract_types.py.
"""

from typing import TypeVar

from quatrain import contract

Config = TypeVar("Config")
Dataset = TypeVar("Dataset")
State = TypeVar("State")

Modules = tuple[
    contract.MemoryModule[Config],
    contract.CollectModule[Config, Dataset],
    contract.LossesModule[Config],
    contract.TrainModule[Config, Dataset, State],
    contract.RulesModule,
    contract.EvaluateModule[Config, Dataset, State],
    contract.PlotsModule[Config, Dataset, State],
    contract.ServeModule[Config, Dataset, State],
]
