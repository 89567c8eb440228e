/* A C program that runs a file of burnish.save. The Python interpreter is part of it; memory is the program's own.

       cc run_from_c.c $(python3-config --embed --cflags --ldflags) -o run_from_c
       ./run_from_c .venv/bin/python model.burnish

   The first argument is the Python whose packages (torch, burnish) are used. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h>

enum { ROWS = 5, IN = 8, OUT = 2 };

static const char SETUP[] =
    "import burnish, torch\n"
    "def opened(path):\n"
    "    run = burnish.load(path)\n"
    "    def call(rows, inputs, outputs):\n"
    "        x, y = (torch.frombuffer(memory, dtype=torch.float32).view(rows, -1) for memory in (inputs, outputs))\n"
    "        with torch.no_grad():\n"
    "            y.copy_(run(x))\n"
    "    return call\n";

static int failed(void) {
    PyErr_Print();
    return 1;
}

int main(int argc, char **argv) {
    float inputs[ROWS * IN], outputs[ROWS * OUT];
    if (argc != 3) {
        fprintf(stderr, "usage: %s PYTHON FILE\n", argv[0]);
        return 2;
    }

    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    PyConfig_SetBytesString(&config, &config.program_name, argv[1]);
    PyStatus status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (PyStatus_Exception(status)) Py_ExitStatusException(status);

    if (PyRun_SimpleString(SETUP)) return 1;
    PyObject *opened = PyObject_GetAttrString(PyImport_AddModule("__main__"), "opened");
    PyObject *model = opened ? PyObject_CallFunction(opened, "s", argv[2]) : NULL;
    if (!model) return failed();

    for (int call = 1; call <= 3; call++) {
        for (int i = 0; i < ROWS * IN; i++) inputs[i] = (float)call;
        PyObject *done = PyObject_CallFunction(model, "iNN", ROWS,
            PyMemoryView_FromMemory((char *)inputs, sizeof inputs, PyBUF_WRITE),
            PyMemoryView_FromMemory((char *)outputs, sizeof outputs, PyBUF_WRITE));
        if (!done) return failed();
        Py_DECREF(done);
        printf("%.6f %.6f\n", outputs[0], outputs[1]);
    }

    Py_DECREF(model);
    Py_DECREF(opened);
    return Py_FinalizeEx() ? 1 : 0;
}
