"""Imports all operator families. This import fills `operator_record.RECORDS`.

>>> from burnish.ops import import_all_operators as families
>>> len(operator_record.RECORDS)
"""

from . import error_conditions as error_conditions
from . import random_numbers as random_numbers
from .elementwise import activation_gradients as activation_gradients
from .elementwise import activations as activations
from .elementwise import arithmetic as arithmetic
from .elementwise import comparisons as comparisons
from .elementwise import copies_and_casts as copies_and_casts
from .elementwise import elementwise_losses as elementwise_losses
from .elementwise import lazy_conj_neg as lazy_conj_neg
from .elementwise import python_number_operators as python_number_operators
from .elementwise import unary_functions as unary_functions
from .elementwise import where_and_clamp as where_and_clamp
from .indexing import index_shape_rules as index_shape_rules
from .library import classification_losses as classification_losses
from .library import collective_calls as collective_calls
from .library import convolution_shape_rules as convolution_shape_rules
from .library import ctc_loss_shape_rules as ctc_loss_shape_rules
from .library import gpu_attention_shape_rules as gpu_attention_shape_rules
from .library import matmul_attention_shape_rules as matmul_attention_shape_rules
from .library import pooling as pooling
from .library import recurrent_shape_rules as recurrent_shape_rules
from .library import resizing as resizing
from .norms import batch_norm as batch_norm
from .norms import group_norm as group_norm
from .norms import layer_and_rms_norm as layer_and_rms_norm
from .reductions import cumulative as cumulative
from .reductions import softmax as softmax
from .reductions import sort_and_topk as sort_and_topk
from .reductions import sums_and_extremes as sums_and_extremes
from .reductions import variance_and_vector_norm as variance_and_vector_norm
from .shapes import concat_and_pad as concat_and_pad
from .shapes import creation as creation
from .shapes import range_creation as range_creation
from .shapes import views as views
