/** Returns a function that writes to this process's stdout, in a guest the console. Drops text that has no reader. */
export function standardOutput(): (text: string) => void {
  // Without a listener, the loss of the reader (EPIPE) would end the agent.
  process.stdout.on('error', () => {})
  return (text) => void process.stdout.write(text)
}
