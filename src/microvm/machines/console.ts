import { gather, writeWhole } from '../../client/container/stdio.ts'
import { pieces } from '../../client/daemon/connect-machine.ts'
import { DETACH_KEYS, Detached, parseKeys, untilKeys } from '../../client/terminal/detach-keys.ts'
import { rawKeys } from '../../client/terminal/terminal.ts'
import { ConsoleIO, OOBManagementDefinition } from '../../gen/vm.ts'
import { argument, type MachineContext } from './command.ts'

const AHEAD_BYTES = 1 << 16

/** Ends at the detach keys, with the console, or at a signal; not at the end of stdin, after which the guest may print on. */
export async function run(context: MachineContext): Promise<undefined> {
  const { signal, stdio } = context
  const daemon = await context.daemon()
  const { fullName, methods } = OOBManagementDefinition
  const call = daemon.stream(fullName, methods.console.name, { instance: argument(context, 'KEY') })
  const over = new AbortController()
  const ended = AbortSignal.any([signal, over.signal])
  ended.addEventListener('abort', () => call.cancel(), { once: true })
  const shown = async () => {
    for await (const answer of call.answers) await writeWhole(stdio.stdout, ConsoleIO.decode(answer).data)
  }
  const typed = async () => {
    for await (const typed of untilKeys(gather(stdio.stdin, AHEAD_BYTES, ended), parseKeys(DETACH_KEYS)))
      for (const data of pieces(typed)) await call.send(ConsoleIO.encode({ data }).finish())
  }
  const restore = rawKeys(stdio)
  const output = shown()
  try {
    await Promise.race([
      output,
      typed()
        .catch(onlyDetached)
        .then(() => output),
    ])
  } catch (error) {
    signal.throwIfAborted()
    if (!(error instanceof Detached)) throw error
    stdio.stderr.write('\r\nmicrovm: detached; the guest goes on\r\n')
  } finally {
    over.abort()
    restore()
    await output.catch(() => {})
  }
}

/** A call that takes no input any more tells by its output why. */
function onlyDetached(error: unknown): void {
  if (error instanceof Detached) throw error
}
