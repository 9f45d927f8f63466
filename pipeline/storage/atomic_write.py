"""The writers of `quatrain.storage.atomic_write`, for what only the pipeline writes."""

from quatrain.storage.atomic_write import PARTIAL as PARTIAL
from quatrain.storage.atomic_write import crash_point as crash_point
from quatrain.storage.atomic_write import remove as remove
from quatrain.storage.atomic_write import sweep_temporaries as sweep_temporaries
from quatrain.storage.atomic_write import sync_folder as sync_folder
from quatrain.storage.atomic_write import write_durably as write_durably
from quatrain.storage.atomic_write import write_together as write_together
