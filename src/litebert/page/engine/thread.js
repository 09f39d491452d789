// One more thread of the engine: the same code over the same memory, taking its part of every job.
addEventListener("message", async ({ data: { module, memory, stack, thread } }) => {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  exports.__stack_pointer.value = stack;
  postMessage("ready");
  exports.serve(thread);
});
