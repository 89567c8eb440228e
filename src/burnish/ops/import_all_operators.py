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
from .indexing import index_types as index_types
from .library import class_loss_types as class_loss_types
from .library import convolution_types as convolution_types
from .library import gpu_attention_types as gpu_attention_types
from .library import matmul_attention_types as matmul_attention_types
from .library import nll_loss_in_loops as nll_loss_in_loops
from .library import normalization_types as normalization_types
from .library import pooling_resizing_types as pooling_resizing_types
from .library import recurrent_types as recurrent_types
from .reductions import cumulative as cumulative
from .reductions import pooling_decomposition as pooling_decomposition
from .reductions import reduction_types as reduction_types
from .reductions import softmax_norm_backward as softmax_norm_backward
from .reductions import softmax_norm_decomposition as softmax_norm_decomposition
from .shapes import concat_and_pad as concat_and_pad
from .shapes import creation as creation
from .shapes import random_creation as random_creation
from .shapes import range_creation as range_creation
from .shapes import views as views
