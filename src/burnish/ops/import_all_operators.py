"""Imports all operator families. This import fills `operator_record.RECORDS`.

>>> from burnish.ops import import_all_operators as families
>>> len(operator_record.RECORDS)
"""

from . import data_dependent_errors as data_dependent_errors
from . import random_numbers as random_numbers
from .elementwise import activation_gradients as activation_gradients
from .elementwise import activations as activations
from .elementwise import arithmetic as arithmetic
from .elementwise import comparisons as comparisons
from .elementwise import copies_and_casts as copies_and_casts
from .elementwise import elementwise_losses as elementwise_losses
from .elementwise import lazy_conj_neg as lazy_conj_neg
from .elementwise import live_scalar_nodes as live_scalar_nodes
from .elementwise import unary_functions as unary_functions
from .elementwise import where_and_clamp as where_and_clamp
from .indexing import index_shape_rules as index_shape_rules
from .library import class_loss_shape_rules as class_loss_shape_rules
from .library import convolution_shape_rules as convolution_shape_rules
from .library import gpu_attention_shape_rules as gpu_attention_shape_rules
from .library import matmul_attention_shape_rules as matmul_attention_shape_rules
from .library import nll_loss_decomposition as nll_loss_decomposition
from .library import normalization_shape_rules as normalization_shape_rules
from .library import pooling_resizing_shape_rules as pooling_resizing_shape_rules
from .library import recurrent_shape_rules as recurrent_shape_rules
from .reductions import cumulative as cumulative
from .reductions import pooling_decomposition as pooling_decomposition
from .reductions import reduction_shape_rules as reduction_shape_rules
from .reductions import softmax_norm_backward as softmax_norm_backward
from .reductions import softmax_norm_decomposition as softmax_norm_decomposition
from .shapes import concat_and_pad as concat_and_pad
from .shapes import creation as creation
from .shapes import random_creation as random_creation
from .shapes import range_creation as range_creation
from .shapes import views as views
