import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { gather } from '../../../client/container/stdio.ts'
import { DETACH_KEYS, Detached, parseKeys, untilKeys } from '../../../client/terminal/detach-keys.ts'
import { rawKeys } from '../../../client/terminal/terminal.ts'
import { introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT, UsageError } from '../../command.ts'
import { featureNamed, whyMissing } from '../../explain-failure.ts'

/** Shims dial this port, too. */
const CONSOLE_PORT = 1026
const LARGEST_PORT = 2 ** 32 - 2
const AHEAD_BYTES = 1 << 16

export async function run(context: Context): Promise<undefined> {
  const { io, signal, values } = context
  const keys = values.parsed('detach-keys', DETACH_KEYS, parseKeys)
  const socket = await dialConsole(context, values.number('port', 1, LARGEST_PORT) ?? CONSOLE_PORT)
  const over = new AbortController()
  const ended = AbortSignal.any([signal, over.signal])
  const restore = rawKeys(io)
  try {
    const output = pipeline(socket, io.stdout, { end: false, signal })
    const typed = async () => {
      for await (const piece of untilKeys(gather(io.stdin, AHEAD_BYTES, ended), keys)) {
        if (!socket.write(piece)) await once(socket, 'drain', { signal: ended })
      }
      // The console may still print after the end of stdin.
    }
    await Promise.race([output, typed().then(() => output)])
  } catch (error) {
    if (error instanceof Detached) io.stderr.write('\r\nagent-ctl: detached; the console ends\r\n')
    else if (signal.aborted) throw signal.reason
    else throw new CommandFailure(EXIT.cannotRun, 'the console closed the connection', { cause: error })
  } finally {
    over.abort()
    restore()
    socket.destroy()
  }
}

/** Throws {@link CommandFailure} with the agent's reason, if the agent can be asked. */
async function dialConsole(context: Context, port: number): Promise<Duplex> {
  try {
    return await context.dialPort(port)
  } catch (error) {
    if (error instanceof UsageError) throw error
    context.signal.throwIfAborted()
    const text = await whyNoConsole(context, port).catch(() => undefined)
    throw text === undefined
      ? error
      : new CommandFailure(EXIT.cannotRun, `console: ${text}`, { cause: error })
  }
}

async function whyNoConsole(context: Context, port: number): Promise<string | undefined> {
  const feature = await featureNamed(await introspectionCalls(context), 'debug console')
  const isElsewhere = feature?.enabled && feature.detail !== `port ${port}`
  return isElsewhere ? `at ${feature.detail}, not at port ${port}` : whyMissing(feature)
}
