import { spawn } from 'node:child_process'

/** The commit of the working tree, with a `+` when it was changed; empty where git does not know it. */
export async function commitHere(): Promise<string> {
  const child = spawn('git', ['describe', '--always', '--dirty=+'], { stdio: ['ignore', 'pipe', 'ignore'] })
  let text = ''
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString()
  })
  await new Promise((resolve) => child.once('close', resolve).once('error', resolve))
  return text.trim()
}
