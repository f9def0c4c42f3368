/* What every fetch does, in C. Python would do the same by ctypes and json (_fetch.py, variant.py),
 * and does where this cannot be loaded; but the GIL is held meanwhile, and the other threads wait.
 *
 * The library is the one that ctypes has opened before, found by its SONAME: _library.py makes sure
 * of it. The limited API makes one build do for every CPython from 3.9 on that has a GIL.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include "experiment.h"

/* For PyArg_ParseTuple: an address as an int; NULL for None. */
static int to_address(PyObject *object, void *out) {
    void *address = object == Py_None ? NULL : PyLong_AsVoidPtr(object);
    *(void **)out = address;
    return address || !PyErr_Occurred();
}

/* What a function of Python makes of an object of the library. */
static PyObject *call(PyObject *function, void *native) {
    PyObject *address = PyLong_FromVoidPtr(native);
    PyObject *result = address ? PyObject_CallFunctionObjArgs(function, address, NULL) : NULL;
    Py_XDECREF(address);
    return result;
}

static PyObject *fetch(PyObject *module, PyObject *arguments) {
    (void)module;
    exp_client *client;
    exp_fetch_options *options;
    const char *json;
    Py_ssize_t length;
    PyObject *read, *error_of;
    if (!PyArg_ParseTuple(arguments, "O&z#O&OO:fetch", to_address, &client, &json, &length,
                          to_address, &options, &read, &error_of)) {
        return NULL;
    }
    exp_user *user = NULL;
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    exp_status status = EXP_OK;
    if (json) {
        status = exp_user_from_json_n(json, (size_t)length, &user, &error);
    }
    if (status == EXP_OK) {
        Py_BEGIN_ALLOW_THREADS;
        status = exp_fetch_v2(client, user, options, &variants, &error);
        Py_END_ALLOW_THREADS;
        exp_free(user);
    }
    PyObject *result = NULL;
    if (status == EXP_OK) {
        result = call(read, variants);
        exp_free(variants);
    } else {
        PyObject *raised = call(error_of, error);
        exp_free(error);
        if (raised) {
            PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
            Py_DECREF(raised);
        }
    }
    return result;
}

static PyObject *text(const char *utf8, size_t length) {
    if (!utf8) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8(utf8, (Py_ssize_t)length, NULL);
}

/* What makes a Variant, had once for many of them. */
typedef struct {
    PyTypeObject *type;
    newfunc new;
    PyObject *no_arguments, *value, *key, *parts;
    int untracked;
} maker;

/* Gives up `given`. */
static int set(PyObject *made, PyObject *name, PyObject *given) {
    int failed = !given || PyObject_SetAttr(made, name, given);
    Py_XDECREF(given);
    return failed;
}

/* [(payload, metadata)], as JSON. */
static PyObject *new_parts(const maker *maker, const exp_variant *variant) {
    PyObject *json = Py_BuildValue("(z#z#)", exp_variant_payload_json(variant),
                                   (Py_ssize_t)exp_variant_payload_json_length(variant),
                                   exp_variant_metadata_json(variant),
                                   (Py_ssize_t)exp_variant_metadata_json_length(variant));
    PyObject *parts = json ? PyList_New(1) : NULL;
    if (!parts) {
        Py_XDECREF(json);
        return NULL;
    }
    PyList_SetItem(parts, 0, json);
    if (maker->untracked) {
        PyObject_GC_UnTrack(json);
        PyObject_GC_UnTrack(parts);
    }
    return parts;
}

/* One as __init__ leaves it, with payload and metadata as JSON in its parts.
 *
 * Of many, none is tracked by the garbage collector, as variant.py says. */
static PyObject *new_variant(const maker *maker, const exp_variant *variant) {
    PyObject *made = maker->new (maker->type, maker->no_arguments, NULL);
    if (!made) {
        return NULL;
    }
    if (maker->untracked) {
        PyObject_GC_UnTrack(made);
    }
    if (set(made, maker->value,
            text(exp_variant_value(variant), exp_variant_value_length(variant))) ||
        set(made, maker->key, text(exp_variant_key(variant), exp_variant_key_length(variant))) ||
        set(made, maker->parts, new_parts(maker, variant))) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}

/* Adds those from `start` on; a false return has raised. */
static int add(PyObject *all, const maker *maker, const exp_variants *variants, size_t start,
               size_t end) {
    for (size_t i = start; i < end; i++) {
        const exp_variant *variant = exp_variants_at(variants, i);
        if (!variant) {
            break;
        }
        PyObject *flag = text(exp_variant_flag_key(variant), exp_variant_flag_key_length(variant));
        PyObject *made = flag ? new_variant(maker, variant) : NULL;
        int failed = !made || PyDict_SetItem(all, flag, made);
        Py_XDECREF(flag);
        Py_XDECREF(made);
        if (failed) {
            return 0;
        }
    }
    return 1;
}

static PyObject *by_flag(PyObject *module, PyObject *arguments) {
    (void)module;
    exp_variants *variants;
    maker maker = {0};
    Py_ssize_t start, count;
    if (!PyArg_ParseTuple(arguments, "O&Onn:by_flag", to_address, &variants, &maker.type, &start,
                          &count)) {
        return NULL;
    }
    maker.new = (newfunc)PyType_GetSlot(maker.type, Py_tp_new);
    maker.untracked = exp_variants_count(variants) > (size_t)count;
    maker.no_arguments = PyTuple_New(0);
    maker.value = PyUnicode_InternFromString("value");
    maker.key = PyUnicode_InternFromString("key");
    maker.parts = PyUnicode_InternFromString("_parts");
    PyObject *all = PyDict_New();
    if (!maker.new || !maker.no_arguments || !maker.value || !maker.key || !maker.parts || !all ||
        !add(all, &maker, variants, (size_t)start, (size_t)start + (size_t)count)) {
        Py_CLEAR(all);
    }
    Py_XDECREF(maker.no_arguments);
    Py_XDECREF(maker.value);
    Py_XDECREF(maker.key);
    Py_XDECREF(maker.parts);
    return all;
}

static PyObject *address_of_exp_free(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyLong_FromVoidPtr((void *)exp_free);
}

static PyMethodDef functions[] = {
    {"address_of_exp_free", address_of_exp_free, METH_NOARGS, NULL},
    {"fetch", fetch, METH_VARARGS, NULL},
    {"by_flag", by_flag, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* As _library.py does, which says what to do about it. */
static int refuse_subinterpreters(PyObject *module) {
    (void)module;
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "libexperiment works in the main interpreter alone");
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)refuse_subinterpreters}, {0, NULL}};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "libexperiment._speedups",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__speedups(void) { return PyModuleDef_Init(&definition); }
