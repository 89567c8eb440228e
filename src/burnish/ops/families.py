"""All families of operators: importing this fills `record.RECORDS`.

    >>> from burnish.ops import families
    >>> len(record.RECORDS)
"""

from . import activation_gradients as activation_gradients
from . import activations as activations
from . import arithmetic as arithmetic
from . import attention_on_gpus as attention_on_gpus
from . import casts as casts
from . import comparisons as comparisons
from . import convolution as convolution
from . import creation as creation
from . import failures as failures
from . import functions as functions
from . import indexing as indexing
from . import joining as joining
from . import lazy as lazy
from . import likelihoods as likelihoods
from . import losses as losses
from . import matrix as matrix
from . import normalisation as normalisation
from . import numbers as numbers
from . import pooling as pooling
from . import random as random
from . import recurrent as recurrent
from . import reductions as reductions
from . import row_gradients as row_gradients
from . import rows as rows
from . import running as running
from . import selection as selection
from . import views as views
from . import windows as windows
