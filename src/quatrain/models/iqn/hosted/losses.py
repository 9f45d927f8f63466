"""values at quantiles, targets -> the quantile Huber loss, the same as in iqn's own world"""

from quatrain.models.iqn.losses import terms as terms
