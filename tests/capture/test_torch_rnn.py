"""Recurrent networks: layers and cells, hidden state carried over calls, packed sequences."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from .caller_programs import program_with_caller
from .harness import program


@program(breaks=0)
def test_lstm_with_and_without_a_state():
    lstm = nn.LSTM(2, 3, batch_first=True)

    def fn(x, state):
        out, (h, c) = lstm(x, state)
        return out, h, c

    state = (torch.randn(1, 2, 3), torch.randn(1, 2, 3))
    return fn, [(torch.randn(2, n, 2), s) for n, s in ((4, None), (4, state), (3, None), (4, None))]


@program(breaks=0)
def test_gru_of_two_layers_in_both_directions():
    gru = nn.GRU(2, 3, num_layers=2, bidirectional=True)
    return gru, lambda i: (torch.randn(4, 2, 2),)


@program(breaks=0)
def test_rnn_without_a_batch():
    rnn = nn.RNN(2, 3, nonlinearity="relu")
    return rnn, [(torch.randn(*s),) for s in ((4, 2), (4, 1, 2), (5, 2), (4, 2))]


@program(breaks=0)
def test_cell_in_a_python_loop():
    cell = nn.LSTMCell(2, 3)

    def fn(x):
        h = c = torch.zeros(x.shape[1], 3)
        outs = []
        for step in x:
            h, c = cell(step, (h, c))
            outs.append(h)
        return torch.stack(outs), c

    return fn, [(torch.randn(n, 2, 2),) for n in (3, 1, 5, 3)]


@program
def test_cell_stops_when_its_output_is_small():
    cell = nn.GRUCell(2, 2)

    def fn(x, limit):
        h = torch.ones(1, 2)
        for n in range(8):
            h = cell(x, h)
            if h.abs().mean() < limit:
                break
        return h, n

    return fn, [(torch.randn(1, 2), limit) for limit in (0.5, 0.0, 2.0, 0.3)]


@program
def test_hidden_state_is_carried_from_call_to_call():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.hidden = nn.GRUCell(2, 3), None

        def forward(self, x):
            self.hidden = self.cell(x, self.hidden)
            return self.hidden * 2

    model = Stateful()
    return model, lambda i: (torch.randn(1, 2),), model


@program_with_caller
def test_state_is_reset_and_detached_between_calls():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.state = nn.LSTM(2, 2), None

        def forward(self, x):
            out, self.state = self.rnn(x, self.state)
            return out.sum()

    model = Stateful()

    def caller(fn, x, reset):
        if reset:
            model.state = None
        elif model.state is not None:
            model.state = tuple(s.detach() for s in model.state)
        model.zero_grad()
        loss = fn(x)
        loss.backward()
        return loss, model.rnn.weight_ih_l0.grad

    return model, caller, [(torch.randn(3, 1, 2), r) for r in (False, False, True, False)]


@program
def test_packed_sequence_goes_through_and_is_padded_again():
    gru = nn.GRU(2, 3, batch_first=True)

    def fn(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, h = gru(packed)
        padded, found = pad_packed_sequence(out, batch_first=True)
        return padded, found, h, packed.batch_sizes

    return fn, [(torch.randn(3, 4, 2), torch.tensor(n)) for n in ([4, 2, 1], [1, 3, 2], [4, 4, 4])]


@program
def test_list_of_sequences_is_padded():
    rnn = nn.RNN(2, 2, batch_first=True)

    def fn(sequences):
        x = pad_sequence(sequences, batch_first=True)
        out, _ = rnn(x)
        last = [out[i, len(s) - 1] for i, s in enumerate(sequences)]
        return torch.stack(last), x.shape

    return fn, [([torch.randn(n, 2) for n in sizes],) for sizes in ((2, 3), (1, 4, 2), (2, 3))]


@program
def test_wrong_input_size_raises():
    lstm = nn.LSTM(2, 3)
    return lstm, [(torch.randn(3, 1, n),) for n in (2, 3, 2, 4)]


@program(breaks=0)
def test_dropout_between_layers_in_training():
    return nn.LSTM(2, 3, num_layers=2, dropout=0.5), lambda i: (torch.randn(3, 2, 2),)


@program_with_caller
def test_gradients_through_time():
    lstm, head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 1)

    def fn(x):
        return head(lstm(x)[0][:, -1]).sum()

    def caller(fn, x):
        lstm.zero_grad()
        fn(x).backward()
        return x.grad, [p.grad for p in lstm.parameters()]

    return fn, caller, lambda i: (torch.randn(2, 4, 2, requires_grad=True),)


@program
def test_encoder_and_decoder_with_teacher_forcing_by_chance():
    encoder, decoder, head = nn.GRU(2, 3), nn.GRUCell(2, 3), nn.Linear(3, 2)

    def fn(source, target, ratio):
        h = encoder(source)[1][0]
        x, outs = torch.zeros(1, 2), []
        for step in target:
            h = decoder(x, h)
            out = head(h)
            outs.append(out)
            x = step if torch.rand(1).item() < ratio else out
        return torch.stack(outs)

    return fn, [(torch.randn(3, 1, 2), torch.randn(4, 1, 2), r) for r in (0.5, 0.0, 1.0, 0.5)]
