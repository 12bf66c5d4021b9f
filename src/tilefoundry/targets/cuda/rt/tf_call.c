// A call of a compiled program without Python's interpreter: tensors are read and judged, outputs
// made, parameters written and launches given to the driver by one function of METH_FASTCALL.
// Nothing is remembered of a tensor, so nothing can be stale; what is kept for a stream is the
// context, the kernels, the workspace and, of several launches, the graph that starts them at once
// with the parameters that it was given last. Anything unexpected is left to the caller (ELSEWHERE).
// Tensors are read through the table of functions that their Python type carries (DLPack 1.3,
// DLPackExchangeAPI); Python's functions are those of its stable ABI.
#include <stdint.h>
#include <string.h>

enum { MOST = 64, SLOTS = 64, ALIGN = 16, MAP = 128, MAP_ALIGN = 64, ELSEWHERE = -1 };
enum { FASTCALL = 0x80 };

typedef void Object;

extern Object *PyObject_Type(Object *), *PyObject_GetItem(Object *, Object *);
extern Object *PyObject_Call(Object *, Object *, Object *), *PyTuple_New(intptr_t);
extern Object *PyObject_Vectorcall(Object *, Object *const *, size_t, Object *);
extern Object *PySequence_GetItem(Object *, intptr_t), *PyLong_FromLong(long);
extern Object *PyCapsule_New(void *, const char *, void (*)(Object *));
extern Object *PyCFunction_NewEx(void *, Object *, Object *);
extern intptr_t PySequence_Size(Object *);
extern int PyTuple_SetItem(Object *, intptr_t, Object *), PyCapsule_SetContext(Object *, void *);
extern void *PyCapsule_GetPointer(Object *, const char *), *PyCapsule_GetContext(Object *);
extern void Py_IncRef(Object *), Py_DecRef(Object *), PyErr_Clear(void);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);
extern unsigned long PyThread_get_thread_ident(void);

// DLTensor
typedef struct {
    char *data;
    int32_t kind, device, dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
} Tensor;

// DLPackExchangeAPI
typedef struct {
    uint32_t major, minor;
    void *older, *allocator, *managed, *object;
    int (*tensor)(Object *object, Tensor *out);
    int (*stream)(int kind, int device, void **out);
} Exchange;

// CUlaunchConfig
typedef struct {
    uint32_t grid[3], block[3], shared;
    void *stream, *attributes;
    uint32_t count;
} Config;

typedef struct {
    int32_t argument;  // of the call; -1: a byte of the workspace
    uint64_t byte;
} Where;

typedef struct {
    Config config;  // its stream is the call's
    int32_t pointers, maps;
    const Where *from;  // of the pointers, then of the maps
    char *encoded;      // the maps, MAP bytes each
    char **address;     // what each map was last encoded for
} Launch;

// CUDA_KERNEL_NODE_PARAMS
typedef struct {
    void *function;
    uint32_t grid[3], block[3], shared;
    void **parameters, **extra, *kernel, *context;
} Node;

// The launches of a call as a graph that the driver has ready: one thread's, on one stream, as a
// graph runs once at a time, and parameters are set before each start.
typedef struct {
    void *ready, *const *nodes;
    char *set;  // the parameters that each node has, as ``parameters`` writes them
} Graph;

// What a call needs of a stream of a device. A workspace is a thread's own: launches of two threads
// may mix on a stream, and what one kernel leaves there is for the next of the same call.
typedef struct {
    void *stream, *context, *const *functions;
    char *work;
    Graph *graph;  // 0: kernels are launched one by one
    unsigned long thread;
    int32_t device;
} Slot;

typedef struct {
    int64_t dims;
    const int64_t *shape;
    uint64_t bytes;
    uint32_t type;  // code, bits and lanes
    Object *weight;  // its name; 0 of an input or an output
} Argument;

typedef struct {
    const Exchange *exchange;
    int (*launch)(const Config *, void *function, void **parameters, void **extra);
    int (*replace)(void *map, void *address);
    int (*current)(void **context), (*push)(void *context), (*pop)(void **context);
    int (*capturing)(void *stream, int *status);
    int (*set)(void *ready, void *node, const Node *), (*start)(void *ready, void *stream);
    Object *types[2];                      // of objects whose table this is
    Object *negated, *no;                  // the method is_neg, and its answer
    Object *empty, *const *made;           // makes outputs on the current device, of these words
    int32_t kind;  // of devices, by DLPack's number
    int32_t inputs, outputs, launches, room;  // room: bytes of the largest parameters
    int32_t own;  // slots are a thread's own, and captures go elsewhere: workspaces, graphs
    const Argument *arguments;             // inputs and weights in order, then outputs
    Launch *launch_of;
    int32_t used;
    Slot slots[SLOTS];
} Call;

static int contiguous(const Tensor *t) {
    int64_t step = 1;
    for (int n = t->dims - 1; n >= 0; n--) {
        if (t->shape[n] != 1 && t->strides && t->strides[n] != step) return 0;
        step *= t->shape[n];
    }
    return 1;
}

// Where a tensor lies that is as declared; 0 for any other. ``fresh``: it was made by us.
static char *address(const Call *c, int n, Object *object, int32_t *device, int fresh) {
    Tensor t;
    Object *type = PyObject_Type(object);
    Py_DecRef(type);
    if (type != c->types[0] && type != c->types[1]) return 0;
    if (c->exchange->tensor(object, &t)) return 0;
    const Argument *a = &c->arguments[n];
    if (t.kind != c->kind || t.dims != a->dims || memcmp(t.shape, a->shape, 8 * t.dims)) return 0;
    if ((t.code | t.bits << 8 | (uint32_t)t.lanes << 16) != a->type || !contiguous(&t)) return 0;
    if (*device >= 0 && t.device != *device) return 0;
    *device = t.device;
    char *at = t.data + t.offset;
    if ((uintptr_t)at % ALIGN) return 0;
    if (fresh) return at;
    // values that are to be read with their signs turned (torch's negative bit)
    Object *answer = PyObject_Vectorcall(c->negated, &object, 1, 0);
    Py_DecRef(answer);
    return answer == c->no ? at : 0;
}

static const Slot *slot(const Call *c, int32_t device, void *stream) {
    const unsigned long thread = c->own ? PyThread_get_thread_ident() : 0;
    for (int n = 0; n < c->used; n++) {
        const Slot *s = &c->slots[n];
        if (s->stream == stream && s->device == device && (!c->own || s->thread == thread)) return s;
    }
    return 0;
}

// Whether output ``n`` shares memory with a tensor before it.
static int shares(const Call *c, int n, char *const *at) {
    for (int m = 0; m < n; m++)
        if (at[n] < at[m] + c->arguments[m].bytes && at[m] < at[n] + c->arguments[n].bytes) return 1;
    return 0;
}

// Writes the parameters of a launch to ``block`` and their places to ``places``.
static int parameters(const Call *c, Launch *x, char *const *at, char *work, char *block,
                      void **places) {
    for (int n = 0; n < x->maps; n++) {
        const Where *w = &x->from[x->pointers + n];
        char *lies = w->argument < 0 ? work + w->byte : at[w->argument], *map = x->encoded + MAP * n;
        if (x->address[n] != lies) {
            x->address[n] = 0;
            if (c->replace(map, lies)) return ELSEWHERE;
            x->address[n] = lies;
        }
        places[x->pointers + n] = memcpy(block + MAP * n, map, MAP);
    }
    char **values = (char **)(block + MAP * x->maps);
    for (int n = 0; n < x->pointers; n++) {
        const Where *w = &x->from[n];
        values[n] = w->argument < 0 ? work + w->byte : at[w->argument];
        places[n] = &values[n];
    }
    return 0;
}

// Starts the graph of a slot; only what differs from the start before is set.
static int started(const Call *c, const Slot *s, int size, char *blocks, void **places, int stride) {
    Graph *g = s->graph;
    int status = 0;
    for (int n = 0; n < c->launches && !status; n++) {
        const Launch *x = &c->launch_of[n];
        const int used = MAP * x->maps + 8 * x->pointers;
        char *now = blocks + size * n, *set = g->set + c->room * n;
        if (!memcmp(now, set, used)) continue;
        Node node = {.function = s->functions[n], .shared = x->config.shared,
                     .parameters = places + stride * n};
        memcpy(node.grid, x->config.grid, sizeof node.grid);
        memcpy(node.block, x->config.block, sizeof node.block);
        status = c->set(g->ready, g->nodes[n], &node);
        if (!status) memcpy(set, now, used);
    }
    return status ? status : c->start(g->ready, s->stream);
}

// Everything after the tensors are known. Parameters are a call's own, as other threads may call
// while the driver reads them.
static int launched(Call *c, Slot s, char *const *at) {
    int size = (c->room + MAP_ALIGN - 1) / MAP_ALIGN * MAP_ALIGN, status = 0;
    char raw[size * c->launches + MAP_ALIGN];
    char *blocks = (char *)(((uintptr_t)raw + MAP_ALIGN - 1) / MAP_ALIGN * MAP_ALIGN);
    void *places[c->launches][c->room / 8], *before = 0;
    for (int n = 0; n < c->launches && !status; n++)
        status = parameters(c, &c->launch_of[n], at, s.work, blocks + size * n, places[n]);
    if (status || c->current(&before)) return ELSEWHERE;
    void *state = PyEval_SaveThread();
    const int pushed = before != s.context && !(status = c->push(s.context));
    if (s.graph && !status) status = started(c, &s, size, blocks, places[0], c->room / 8);
    for (int n = 0; n < c->launches && !s.graph && !status; n++) {
        Config config = c->launch_of[n].config;
        config.stream = s.stream;
        status = c->launch(&config, s.functions[n], places[n], 0);
    }
    if (pushed) c->pop(&before);
    PyEval_RestoreThread(state);
    return status;
}

// Takes the weights by name and the arguments of the call; ``outs``: a sequence of outputs, or 0
// where they are to be made, which become ``*result``.
static int called(Call *c, Object *weights, Object *outs, Object *const *given, intptr_t count,
                  Object **held, Object **result) {
    char *at[MOST];
    int32_t device = -1;
    void *stream, *context;
    int capturing = 0, all = c->inputs + c->outputs, left = 0;
    for (int n = 0; n < c->inputs; n++) {
        Object *name = c->arguments[n].weight;
        if (name)
            held[n] = PyObject_GetItem(weights, name);
        else if (left < count)
            Py_IncRef(held[n] = given[left++]);
        if (!held[n] || !(at[n] = address(c, n, held[n], &device, 0))) return ELSEWHERE;
    }
    if (left != count) return ELSEWHERE;
    if (outs) {
        if (PySequence_Size(outs) != c->outputs) return ELSEWHERE;
        for (int n = c->inputs; n < all; n++) {
            held[n] = PySequence_GetItem(outs, n - c->inputs);
            if (!held[n] || !(at[n] = address(c, n, held[n], &device, 0))) return ELSEWHERE;
            if (shares(c, n, at)) return ELSEWHERE;
        }
    }
    if (device < 0 || c->exchange->stream(c->kind, device, &stream)) return ELSEWHERE;
    const Slot *s = slot(c, device, stream);
    if (!s || (c->own && (c->capturing(stream, &capturing) || capturing))) return ELSEWHERE;
    if (outs) return launched(c, *s, at);
    if (c->current(&context) || context != s->context) return ELSEWHERE;
    Slot kept = *s;  // making tensors may execute Python
    for (int n = c->inputs; n < all; n++) {
        held[n] = PyObject_Call(c->empty, c->made[n - c->inputs], 0);
        if (!held[n] || !(at[n] = address(c, n, held[n], &device, 1))) return ELSEWHERE;
    }
    int status = launched(c, kept, at);
    if (status) return status;
    if (c->outputs == 1) {
        Py_IncRef(*result = held[c->inputs]);
        return 0;
    }
    *result = PyTuple_New(c->outputs);
    for (int n = c->inputs; *result && n < all; n++) {
        Py_IncRef(held[n]);
        PyTuple_SetItem(*result, n - c->inputs, held[n]);
    }
    return 0;
}

// The outputs, or a number: the driver's status, or ELSEWHERE.
static Object *answered(Object *self, Object *const *args, intptr_t count, int outs) {
    Call *c = PyCapsule_GetPointer(self, 0);
    Object *held[MOST] = {0}, *result = 0;
    int status = ELSEWHERE;
    if (count > outs) {
        status = called(c, args[0], outs ? args[1] : 0, args + 1 + outs, count - 1 - outs, held,
                        &result);
    }
    for (int n = 0; n < c->inputs + c->outputs; n++) Py_DecRef(held[n]);
    if (status == ELSEWHERE) PyErr_Clear();
    return result ? result : PyLong_FromLong(status);
}

// make(weights, *inputs)
static Object *make(Object *self, Object *const *args, intptr_t count) {
    return answered(self, args, count, 0);
}

// into(weights, outputs, *inputs)
static Object *into(Object *self, Object *const *args, intptr_t count) {
    return answered(self, args, count, 1);
}

static void freed(Object *capsule) { Py_DecRef(PyCapsule_GetContext(capsule)); }

// A Python function of ``call``, which ``keeps`` keeps alive.
Object *tf_function(Call *call, Object *keeps, int outs) {
    static struct {
        const char *name;
        void *function;
        int flags;
        const char *doc;
    } methods[] = {{"make", make, FASTCALL, 0}, {"into", into, FASTCALL, 0}};
    Object *self = PyCapsule_New(call, 0, freed);
    if (!self) return 0;
    Py_IncRef(keeps);
    PyCapsule_SetContext(self, keeps);
    Object *out = PyCFunction_NewEx(&methods[outs], self, 0);
    Py_DecRef(self);
    return out;
}
