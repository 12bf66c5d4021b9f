// A call whose tensors were launched with before, at the same addresses and on the same stream:
// everything is compared and the prepared launches go to the driver, without Python's objects.
// Tensors are read through the table of functions that their Python type carries
// (DLPack 1.3, DLPackExchangeAPI); anything unexpected is left to the caller.
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 16, SLOTS = 64, CUDA = 2, ALIGN = 16, ELSEWHERE = -1 };

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
    int (*tensor)(void *object, Tensor *out);
    int (*stream)(int kind, int device, void **out);
} Exchange;

typedef struct {
    int64_t dims;
    const int64_t *shape;
} Shape;

// Arguments of cuLaunchKernelEx
typedef struct {
    void *config, *function, *parameters;
} Launch;

typedef struct {
    void *stream, *data[MOST];
    uint32_t type[MOST];
    int32_t device, used;
    const Launch *launches;
} Slot;

typedef struct {
    const Exchange *exchange;
    int (*launch)(void *config, void *function, void *parameters, void *extra);
    void *types[2];  // of objects whose table this is
    int64_t tensors, launches;
    const Shape *shapes;
    Slot slots[SLOTS];
} Call;

extern void *PyObject_Type(void *object);
extern void Py_DecRef(void *object);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);

static int contiguous(const Tensor *t) {
    int64_t step = 1;
    for (int n = t->dims - 1; n >= 0; n--) {
        if (t->shape[n] != 1 && t->strides && t->strides[n] != step) return 0;
        step *= t->shape[n];
    }
    return 1;
}

// What the tensors are: 0 where they are as declared.
static int described(const Call *c, va_list objects, Slot *out) {
    for (int n = 0; n < c->tensors; n++) {
        Tensor t;
        void *object = va_arg(objects, void *), *type = PyObject_Type(object);
        Py_DecRef(type);
        if (type != c->types[0] && type != c->types[1]) return ELSEWHERE;
        if (c->exchange->tensor(object, &t)) return ELSEWHERE;
        const Shape *shape = &c->shapes[n];
        out->data[n] = t.data + t.offset;
        out->type[n] = t.code | t.bits << 8 | (uint32_t)t.lanes << 16;
        if (t.kind != CUDA || (n && t.device != out->device) || t.dims != shape->dims) return ELSEWHERE;
        if (memcmp(t.shape, shape->shape, 8 * t.dims) || !contiguous(&t)) return ELSEWHERE;
        if ((uintptr_t)out->data[n] % ALIGN) return ELSEWHERE;
        out->device = t.device;
    }
    return c->exchange->stream(CUDA, out->device, &out->stream) ? ELSEWHERE : 0;
}

static Slot *place(Call *c, const Slot *seen) {
    uint64_t mixed = (uintptr_t)seen->stream;
    for (int n = 0; n < c->tensors; n++)
        mixed = (mixed ^ (uintptr_t)seen->data[n] >> 4) * 0x9e3779b97f4a7c15u;
    return &c->slots[mixed >> 58];
}

// The driver's status, or ELSEWHERE where nothing is prepared for these tensors.
int tf_call(Call *c, ...) {
    Slot seen = {0};
    va_list objects;
    va_start(objects, c);
    int status = described(c, objects, &seen);
    va_end(objects);
    if (status) return status;
    const Slot *kept = place(c, &seen);
    if (!kept->used || kept->stream != seen.stream || kept->device != seen.device) return ELSEWHERE;
    for (int n = 0; n < c->tensors; n++)
        if (kept->data[n] != seen.data[n] || kept->type[n] != seen.type[n]) return ELSEWHERE;
    void *state = PyEval_SaveThread();
    for (int n = 0; n < c->launches && !status; n++) {
        const Launch *x = &kept->launches[n];
        status = c->launch(x->config, x->function, x->parameters, 0);
    }
    PyEval_RestoreThread(state);
    return status;
}

// Keeps the launches of tensors that the caller has judged; 0 where they are as declared.
int tf_keep(Call *c, const Launch *launches, ...) {
    Slot seen = {0};
    va_list objects;
    va_start(objects, launches);
    int status = described(c, objects, &seen);
    va_end(objects);
    if (status) return status;
    seen.used = 1;
    seen.launches = launches;
    *place(c, &seen) = seen;
    return 0;
}

void tf_forget(Call *c) { memset(c->slots, 0, sizeof c->slots); }

int tf_size(void) { return sizeof(Call); }
