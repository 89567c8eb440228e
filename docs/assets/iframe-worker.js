// The theme searches in a Worker, which browsers refuse to pages that are opened as files. Here a hidden frame stands in.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const scope = frame.contentWindow;
      const load = (source) => new Promise((loaded, failed) => {
        const script = scope.document.createElement("script");
        Object.assign(script, { src: source, onload: loaded, onerror: failed });
        scope.document.body.append(script);
      });
      scope.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(url);
      this.postMessage = (data) => this.ready.then(() => scope.dispatchEvent(new scope.MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
}
