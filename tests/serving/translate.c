/* Translates with an exported model in TensorFlow's own runtime, without Python.

   Usage: translate SAVED_MODEL_FOLDER INPUT OUTPUT OPS_LIBRARY... -- TEXT...

   INPUT and OUTPUT are tensors such as "serving_default_texts:0", as
   `saved_model_cli show --tag_set serve --signature_def serving_default` names them.
   OPS_LIBRARY is a library of operations that are not TensorFlow's own, such as
   tensorflow_text/python/ops/_sentencepiece_tokenizer.so. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

/* Whether `status` is good; if not, says what went wrong. */
static int ok(const TF_Status *status, const char *what) {
  if (TF_GetCode(status) == TF_OK) return 1;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  return 0;
}

/* Finds the tensor "operation:index". */
static int find(TF_Graph *graph, char *name, TF_Output *found) {
  char *colon = strrchr(name, ':');
  if (colon) *colon = '\0';
  found->oper = TF_GraphOperationByName(graph, name);
  found->index = colon ? atoi(colon + 1) : 0;
  if (colon) *colon = ':';
  if (!found->oper || found->index < 0 ||
      found->index >= TF_OperationNumOutputs(found->oper) ||
      TF_OperationOutputType(*found) != TF_STRING) {
    fprintf(stderr, "%s: the model has no such tensor of strings\n", name);
    return 0;
  }
  return 1;
}

/* A tensor [count] that points to `texts`, which must outlive it. */
static TF_Tensor *tensor_of(char **texts, int count) {
  int64_t shape[] = {count};
  TF_Tensor *tensor =
      TF_AllocateTensor(TF_STRING, shape, 1, count * sizeof(TF_TString));
  TF_TString *strings = TF_TensorData(tensor);
  for (int i = 0; i < count; i++) {
    TF_StringInit(&strings[i]);
    TF_StringAssignView(&strings[i], texts[i], strlen(texts[i]));
  }
  return tensor;
}

static void print_lines(const TF_Tensor *tensor) {
  const TF_TString *strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); i++) {
    fwrite(TF_StringGetDataPointer(&strings[i]), 1, TF_StringGetSize(&strings[i]),
           stdout);
    putchar('\n');
  }
}

static int translate(TF_Graph *graph, TF_Session *session, char **names, char **texts,
                     int count, TF_Status *status) {
  TF_Output input = {0}, output = {0};
  if (!find(graph, names[0], &input) || !find(graph, names[1], &output)) return 0;
  TF_Tensor *given = tensor_of(texts, count);
  TF_Tensor *found = NULL;
  TF_SessionRun(session, NULL, &input, &given, 1, &output, &found, 1, NULL, 0, NULL,
                status);
  int good = ok(status, "translating");
  if (good) print_lines(found);
  TF_DeleteTensor(given);
  TF_DeleteTensor(found);
  return good;
}

static int serve(char **arguments, int count, int dashes, TF_Status *status) {
  for (int i = 3; i < dashes; i++) {
    /* The handle only lists the operations; they stay when it goes. */
    TF_DeleteLibraryHandle(TF_LoadLibrary(arguments[i], status));
    if (!ok(status, arguments[i])) return 0;
  }
  const char *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session = TF_LoadSessionFromSavedModel(
      options, NULL, arguments[0], tags, 1, graph, NULL, status);
  int good = ok(status, arguments[0]);
  if (good) {
    char **texts = arguments + dashes + 1;
    good = translate(graph, session, arguments + 1, texts, count - dashes - 1, status);
    TF_DeleteSession(session, status);
    good = ok(status, "closing the session") && good;
  }
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  return good;
}

int main(int argc, char **argv) {
  char **arguments = argv + 1;
  int count = argc - 1, dashes = 0;
  while (dashes < count && strcmp(arguments[dashes], "--")) dashes++;
  if (dashes < 3 || dashes == count) {
    fprintf(stderr, "usage: %s SAVED_MODEL_FOLDER INPUT OUTPUT OPS_LIBRARY... "
                    "-- TEXT...\n", argv[0]);
    return 1;
  }
  TF_Status *status = TF_NewStatus();
  int good = serve(arguments, count, dashes, status);
  TF_DeleteStatus(status);
  return good ? 0 : 1;
}
