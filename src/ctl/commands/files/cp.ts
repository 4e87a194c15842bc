import type { Writable } from 'node:stream'
import { bytesText, plainText } from '../../../client/output/text.ts'
import { type Context, UsageError } from '../../command.ts'
import { type ContainerPath, copyIn, copyOut } from './copy-by-tar.ts'
import { copyIntoGuest } from './copy-into-guest.ts'
import type { Copying } from './copy-tree.ts'

export async function run(context: Context): Promise<undefined> {
  const { io, signal, values } = context
  const [source, target] = [values.argument('SOURCE'), values.argument('TARGET')]
  const progress = new Progress(io.stderr)
  const copying: Copying = {
    moved: (bytes) => progress.add(bytes),
    warn: (text) => void io.stderr.write(`agent-ctl: cp: ${plainText(text)}\n`),
    signal,
  }
  try {
    if (values.flag('guest')) await copyIntoGuest(context, source, target, copying)
    else await copyByTar(context, source, target, copying)
  } finally {
    progress.end()
  }
}

async function copyByTar(context: Context, source: string, target: string, copying: Copying): Promise<void> {
  const [from, to] = [inContainer(source), inContainer(target)]
  if (from !== undefined && to === undefined) return await copyOut(context, from, target, copying)
  if (from === undefined && to !== undefined) return await copyIn(context, source, to, copying)
  throw new UsageError(
    'cp: want CONTAINER:PATH for the source or the target, and a path of this machine for the other',
  )
}

/** `CONTAINER:PATH`. A path of this machine with a colon begins with `/` or `./`. */
function inContainer(text: string): ContainerPath | undefined {
  const [, container, path] = /^([^:/.][^:/]*):(.*)$/s.exec(text) ?? []
  if (container === undefined || path === undefined) return undefined
  if (!path.startsWith('/')) throw new UsageError(`${text}: want an absolute path after the colon`)
  return { container, path }
}

const SHOW_MS = 200

/** Shows the progress on a terminal, in one line that it erases at the end. */
class Progress {
  readonly #output: Writable & { readonly isTTY?: boolean }
  readonly #began = performance.now()
  #bytes = 0
  #shownAt = 0

  constructor(output: Writable & { readonly isTTY?: boolean }) {
    this.#output = output
  }

  add(bytes: number): void {
    this.#bytes += bytes
    const now = performance.now()
    if (this.#output.isTTY !== true || now - this.#shownAt < SHOW_MS) return
    this.#shownAt = now
    const rate = (this.#bytes / (now - this.#began)) * 1000
    this.#output.write(`\r\x1b[K${bytesText(this.#bytes)} (${bytesText(rate)}/s)`)
  }

  end(): void {
    if (this.#shownAt > 0) this.#output.write('\r\x1b[K')
  }
}
