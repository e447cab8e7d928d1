// Lets the search work in a page that is opened as a file, where browsers refuse workers: the
// script runs in a frame. (The plugin `offline` would fetch such a script from the network.)
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentDocument;
      inside.write("<body></body>");
      inside.close();
      this.scope = frame.contentWindow;
      this.scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.createElement("script");
      this.loaded = new Promise(resolve => { script.onload = resolve; });
      script.src = url;
      inside.body.append(script);
    }
    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
