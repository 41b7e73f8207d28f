/* Integer columns of the leaf pages of an SQLite table, into preallocated arrays; searches in sorted columns; and how much of some intervals others take.
 *
 * The same values as pages.py decodes with NumPy, or nothing: whatever is not a plain case, or would
 * be read outside its page, ends the call with -1, and the caller decodes these pages in Python.
 * File format: https://www.sqlite.org/fileformat2.html
 */
#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define LEAF 13
#define NARROW (1 << 30) /* less and more than its negative: sums of two fit in 32 bits */
#define MOST_COLUMNS 64 /* wanted at once */
#define LONGEST_HEADER 127 /* bytes, its own length among them: a column takes one at least */
#define LAYOUTS 64 /* that are kept: rows differ in the sizes of a few of their values */

typedef struct {
    int8_t slot[LONGEST_HEADER]; /* by place in the record: which wanted column it is, or -1 */
    void *outs[MOST_COLUMNS];
    int narrow[MOST_COLUMNS]; /* whether it is of int32, else of int64 */
    int wide;                 /* the column of int32 that a value does not fit in, or -1 */
    int wanted, stored; /* columns that are looked at, and those of them that are returned */
    int keep;           /* the wanted column that decides about a row, or -1 */
    const int64_t *kept;
    Py_ssize_t kept_count;
    int64_t missing; /* what NULL reads as */
    Py_ssize_t rows, room;
} Task;

/* Where the records of one header hold the wanted values, relative to the header's end. */
typedef struct {
    uint8_t header[LONGEST_HEADER];
    size_t header_size, body_size;
    uint16_t offset[MOST_COLUMNS];
    uint8_t type[MOST_COLUMNS];
} Layout;

/* Position behind the varint at `p`, or NULL where it does not end before `end`. */
static const uint8_t *varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        if (p >= end)
            return NULL;
        v = v << 7 | (*p & 127);
        if (!(*p++ & 128)) {
            *value = v;
            return p;
        }
    }
    if (p >= end)
        return NULL;
    *value = v << 8 | *p;
    return p + 1;
}

static uint32_t big4(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int64_t value_of(const uint8_t *p, const uint8_t *end, int type, int64_t missing)
{
    static const uint8_t unused[] = {64, 56, 48, 40, 32, 16, 0}; /* bits behind it in 8 bytes */
    if (end - p >= 8 && type >= 1 && type <= 6)
        return (int64_t)((uint64_t)big4(p) << 32 | big4(p + 4)) >> unused[type];
    switch (type) {
    case 0:
        return missing;
    case 1:
        return (int8_t)p[0];
    case 2:
        return (int16_t)(p[0] << 8 | p[1]);
    case 3:
        return (int64_t)(int8_t)p[0] * 65536 + (p[1] << 8 | p[2]);
    case 4:
        return (int32_t)big4(p);
    case 5:
        return (int64_t)(int16_t)(p[0] << 8 | p[1]) * 4294967296 + big4(p + 2);
    case 6:
        return (int64_t)((uint64_t)big4(p) << 32 | big4(p + 4));
    default:
        return type == 9; /* types 8 and 9 are the numbers 0 and 1 */
    }
}

/* Fills the layout of a header of `size` bytes; false where it is none of a plain record. */
static int parse(const uint8_t *header, size_t size, uint64_t page_size, const Task *task, Layout *layout)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
    const uint8_t *p = header + 1, *end = header + size;
    uint64_t offset = 0;
    int found = 0;
    for (int column = 0; p < end; column++) {
        uint64_t type = *p;
        int k = task->slot[column];
        if (type < 128)
            p++;
        else if (!(p = varint(p, end, &type)))
            return 0;
        if (type == 10 || type == 11)
            return 0;
        if (k >= 0) {
            if (type == 7 || type > 9) /* a real, text or blob: SQL casts it */
                return 0;
            layout->offset[k] = (uint16_t)offset;
            layout->type[k] = (uint8_t)type;
            found++;
        }
        offset += type < 10 ? sizes[type] : (type - 12) / 2;
        if (offset > page_size)
            return 0;
    }
    if (found != task->wanted) /* rows older than a column that was added to the table */
        return 0;
    memcpy(layout->header, header, size);
    layout->header_size = size;
    layout->body_size = (size_t)offset;
    return 1;
}

/* The layout of a header of `size` bytes among those kept, or where it belongs. */
static Layout *kept_layout(const uint8_t *header, size_t size, Layout *layouts)
{
    uint64_t hash = size, word = 0;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        memcpy(&word, header + i, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    for (word = 0; i < size; i++)
        word = word << 8 | header[i];
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return &layouts[hash >> 58]; /* the highest 6 bits: LAYOUTS */
}

/* Appends the rows of one page; false where the page is not plain. */
static int decode_page(const uint8_t *page, size_t size, Task *task, Layout *layouts)
{
    const uint8_t *end = page + size;
    Layout *layout = layouts;
    size_t cells = (size_t)page[3] << 8 | page[4];
    if (page[0] != LEAF || 8 + 2 * cells > size)
        return 0;
    for (size_t i = 0; i < cells; i++) {
        size_t at = (size_t)page[8 + 2 * i] << 8 | page[9 + 2 * i];
        uint64_t payload, rowid;
        const uint8_t *p = at < size ? varint(page + at, end, &payload) : NULL;
        if (!p || payload > size - 35) /* it would spill over to other pages */
            return 0;
        p = varint(p, end, &rowid);
        if (!p || payload > (uint64_t)(end - p) || !payload)
            return 0;
        size_t header = p[0];
        if (!header || header > LONGEST_HEADER || header > payload)
            return 0;
        if (header != layout->header_size || memcmp(p, layout->header, header)) {
            layout = kept_layout(p, header, layouts);
            if (header != layout->header_size || memcmp(p, layout->header, header))
                if (!parse(p, header, size, task, layout))
                    return 0;
        }
        if (header + layout->body_size != payload)
            return 0;
        p += header;
        if (task->keep >= 0) {
            int64_t value = value_of(p + layout->offset[task->keep], end, layout->type[task->keep], task->missing);
            Py_ssize_t k = 0;
            while (k < task->kept_count && task->kept[k] != value)
                k++;
            if (k == task->kept_count)
                continue;
        }
        if (task->rows >= task->room)
            return 0;
        for (int k = 0; k < task->stored; k++) {
            int64_t value = value_of(p + layout->offset[k], end, layout->type[k], task->missing);
            if (!task->narrow[k]) {
                ((int64_t *)task->outs[k])[task->rows] = value;
            } else if (value > -NARROW && value < NARROW) {
                ((int32_t *)task->outs[k])[task->rows] = (int32_t)value;
            } else {
                task->wide = k;
                return 0;
            }
        }
        task->rows++;
    }
    return 1;
}

/* decode(pages, page_size, places, outs, row, missing, keep, kept) -> row behind the last, -1, or -2 - k where
 * column k of `outs` has to be of int64 */
static PyObject *decode(PyObject *module, PyObject *args)
{
    Py_buffer pages, places, kept, outs[MOST_COLUMNS];
    Py_ssize_t page_size, row, count, taken = 0, result = -1;
    PyObject *list;
    long long missing;
    Task task = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ny*O!nLiy*", &pages, &page_size, &places, &PyList_Type, &list, &row,
                          &missing, &task.keep, &kept))
        return NULL;
    count = PyList_Size(list);
    task.wanted = (int)(places.len / (Py_ssize_t)sizeof(int32_t));
    if (task.wanted > MOST_COLUMNS || count > task.wanted || page_size < 512 || page_size > 65536 ||
        row < 0 || task.keep >= task.wanted) {
        PyErr_SetString(PyExc_ValueError, "decode: arguments out of range");
        goto done;
    }
    task.room = PY_SSIZE_T_MAX;
    for (; taken < count; taken++) {
        PyObject *item = PyList_GetItem(list, taken);
        if (PyObject_GetBuffer(item, &outs[taken], PyBUF_WRITABLE | PyBUF_ND))
            goto done;
        task.narrow[taken] = outs[taken].itemsize == sizeof(int32_t);
        Py_ssize_t room = outs[taken].len / (Py_ssize_t)(task.narrow[taken] ? sizeof(int32_t) : sizeof(int64_t));
        task.outs[taken] = outs[taken].buf;
        task.room = room < task.room ? room : task.room;
    }
    memset(task.slot, -1, sizeof task.slot);
    for (int k = 0; k < task.wanted; k++) {
        int32_t place = ((const int32_t *)places.buf)[k];
        if (place < 0 || place >= LONGEST_HEADER) /* the header of such a row is longer */
            goto done;
        task.slot[place] = (int8_t)k;
    }
    task.stored = (int)count;
    task.kept = kept.buf;
    task.kept_count = kept.len / (Py_ssize_t)sizeof(int64_t);
    task.missing = missing;
    task.rows = row;
    task.wide = -1;
    Py_BEGIN_ALLOW_THREADS
    Layout layouts[LAYOUTS] = {{{0}}};
    Py_ssize_t number = pages.len / page_size, i = 0;
    while (i < number && decode_page((const uint8_t *)pages.buf + i * page_size, (size_t)page_size, &task, layouts))
        i++;
    result = i == number ? task.rows : task.wide >= 0 ? -2 - task.wide : -1;
    Py_END_ALLOW_THREADS
done:
    while (taken)
        PyBuffer_Release(&outs[--taken]);
    PyBuffer_Release(&pages);
    PyBuffer_Release(&places);
    PyBuffer_Release(&kept);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(result);
}

/* Number of entries below `value`, looked for from position `near` on in steps that double. */
static Py_ssize_t below(const int64_t *ranked, Py_ssize_t count, int64_t value, Py_ssize_t near)
{
    Py_ssize_t lo = near, hi = near, step = 1;
    if (near < count && ranked[near] < value) {
        for (lo++; step <= count - lo && ranked[lo + step - 1] < value; step *= 2)
            lo += step;
        hi = step <= count - lo ? lo + step - 1 : count;
    } else {
        for (; step <= hi && ranked[hi - step] >= value; step *= 2)
            hi -= step;
        lo = step <= hi ? hi - step + 1 : 0;
    }
    while (lo < hi) {
        Py_ssize_t middle = lo + (hi - lo) / 2;
        if (ranked[middle] < value)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* search(ranked, wanted, right, out): numpy.searchsorted of int64, each from where the last one ended */
static PyObject *search(PyObject *module, PyObject *args)
{
    Py_buffer ranked, wanted, out;
    int right;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*pw*", &ranked, &wanted, &right, &out))
        return NULL;
    const int64_t *values = wanted.buf;
    int64_t *places = out.buf;
    Py_ssize_t near = 0, size = sizeof(int64_t), count = ranked.len / size;
    Py_ssize_t number = (wanted.len < out.len ? wanted.len : out.len) / size;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < number; i++) {
        if (right && values[i] == INT64_MAX)
            near = count;
        else
            near = below(ranked.buf, count, values[i] + right, near);
        places[i] = near;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&ranked);
    PyBuffer_Release(&wanted);
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* measure(start, end, left, time, negative, out): adds to `out`, or subtracts from it, how much of a merged set lies
 * before each time; `left` is what lies outside of it before the end of each interval */
static PyObject *measure(PyObject *module, PyObject *args)
{
    Py_buffer in[4], out; /* start, end, left, time */
    int negative;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*pw*", &in[0], &in[1], &in[2], &in[3], &negative, &out))
        return NULL;
    const int64_t *end = in[1].buf, *left = in[2].buf, *time = in[3].buf;
    uint64_t *cells = out.buf;
    Py_ssize_t near = 0, size = sizeof(int64_t), count = in[0].len / size;
    Py_ssize_t number = in[1].len == in[0].len && in[2].len == in[0].len && out.len >= in[3].len ? in[3].len / size : 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < number; i++) {
        near = time[i] == INT64_MAX ? count : below(in[0].buf, count, time[i] + 1, near);
        if (!near)
            continue;
        int64_t until = time[i] < end[near - 1] ? time[i] : end[near - 1];
        uint64_t held = (uint64_t)until - (uint64_t)left[near - 1];
        cells[i] += negative ? 0 - held : held;
    }
    Py_END_ALLOW_THREADS
    for (int i = 0; i < 4; i++)
        PyBuffer_Release(&in[i]);
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* shares(start, end, column, lo, hi, columns, across, out): adds to the cells of `out`, a row for each [lo, hi)
 * (or for each column if `across`), how much of it the runs of each column take; runs ascend by start, intervals
 * by both ends */
static PyObject *shares(PyObject *module, PyObject *args)
{
    Py_buffer in[5], out; /* start, end, column, lo, hi */
    Py_ssize_t columns, first = 0;
    int across;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*npw*", &in[0], &in[1], &in[2], &in[3], &in[4], &columns, &across, &out))
        return NULL;
    const int64_t *start = in[0].buf, *end = in[1].buf, *lo = in[3].buf, *hi = in[4].buf;
    const int32_t *column = in[2].buf;
    uint64_t *cells = out.buf; /* without a sign, so that a run over all of int64 wraps around as in NumPy */
    Py_ssize_t runs = in[0].len / (Py_ssize_t)sizeof(int64_t), count = in[3].len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t row = across ? 1 : columns, step = across ? count : 1;
    int fits = columns > 0 && in[1].len == in[0].len && in[2].len * 2 == in[0].len && in[4].len == in[3].len &&
               out.len / columns >= in[3].len;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t r = 0; fits && r < runs; r++) {
        if (column[r] < 0 || column[r] >= columns)
            continue;
        while (first < count && hi[first] <= start[r])
            first++;
        for (Py_ssize_t i = first; i < count && lo[i] < end[r]; i++) {
            int64_t from = start[r] > lo[i] ? start[r] : lo[i], to = end[r] < hi[i] ? end[r] : hi[i];
            if (to > from)
                cells[i * row + column[r] * step] += (uint64_t)to - (uint64_t)from;
        }
    }
    Py_END_ALLOW_THREADS
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(&in[i]);
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, "Decode leaf pages; the row behind the last, or -1."},
    {"search", search, METH_VARARGS, "Positions in a sorted array, as numpy.searchsorted has them."},
    {"measure", measure, METH_VARARGS, "How much of a merged set lies before each time."},
    {"shares", shares, METH_VARARGS, "How much of each of some intervals runs of some kinds take."},
    {NULL, NULL, 0, NULL},
};

static int ready(PyObject *module)
{
    return PyModule_AddIntConstant(module, "MOST_COLUMNS", MOST_COLUMNS) ||
           PyModule_AddIntConstant(module, "NARROW", NARROW) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, ready}, {0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_pages", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__pages(void)
{
    return PyModuleDef_Init(&definition);
}
