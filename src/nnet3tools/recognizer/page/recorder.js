// Sends the microphone's samples to the page as 16-bit integers, a tenth of a second at a time.
class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.samples = new Int16Array(Math.round(sampleRate / 10));
    this.count = 0;
  }

  process(inputs) {
    const channel = inputs[0][0];
    if (!channel) return true;
    for (const value of channel) {
      this.samples[this.count++] = Math.max(-1, Math.min(1, value)) * 32767;
      if (this.count === this.samples.length) {
        const full = this.samples.slice();
        this.port.postMessage(full.buffer, [full.buffer]);
        this.count = 0;
      }
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
