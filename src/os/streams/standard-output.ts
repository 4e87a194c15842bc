/** Writes lines to this process's stdout: the console in a guest. What nobody reads any more is dropped. */
export function standardOutput(): (text: string) => void {
  // Without a listener, a reader that went away (EPIPE) would end the agent.
  process.stdout.on('error', () => {})
  return (text) => void process.stdout.write(text)
}
