import type { ChildProcess } from 'node:child_process'
import { copyFileSync, existsSync, readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { AgentError } from '../../../src/base/errors.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { connectMachine } from '../../../src/client/daemon/connect-machine.ts'
import {
  ChangeStateRequest_Change as Change,
  EnsureInstanceRequest,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../src/host/instance/holder/holder-files.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { daemonClient } from '../host-wing/running-daemon.ts'
import { endChild } from '../processes.ts'
import { progress } from '../vm/boot-guest.ts'
import { savableGuest } from '../vm/daemon-guest.ts'
import { limit } from '../vm/saved/saving.ts'
import { startDaemonProcess } from '../wing/daemon-process.ts'
import { leftovers } from '../wing/leftovers.ts'

const KEY = 'frozen'
/** An agent that dies in a suspend may end it; the machine goes on then. */
const MOST_SUSPENDS = 5

/** A guest that a daemon saves as a file and resumes. Its busybox disk is at `05`. */
export class SuspendedMachine {
  readonly #folder = makeTemporaryFolder(tmpdir())
  #daemon: ChildProcess | undefined
  #client: ReturnType<typeof daemonClient> | undefined

  async consoleText(): Promise<string> {
    const all = join(this.#state, 'instances')
    const [own] = existsSync(all) ? readdirSync(all) : []
    return own === undefined ? '' : (await readRing(join(all, own), 0)).bytes.toString('latin1')
  }

  async boot(words: readonly string[]): Promise<void> {
    const disk = join(this.#folder, 'busybox')
    copyFileSync(await ensureContainerRoot(progress), disk)
    this.#daemon = await startDaemonProcess(this.#state)
    this.#client = daemonClient(join(this.#state, 'admin.sock'))
    const specification = await savableGuest(disk, { append: words })
    await this.#calls.ensureInstance({ properties: { key: KEY }, specification })
    await this.#calls.changeState({ key: KEY, change: Change.RUN })
  }

  /** Connects to the agent, and waits until it answers. */
  connect(): Promise<TtrpcClient> {
    const socket = join(this.#state, 'admin.sock')
    return connectAgent({ connect: (signal) => connectMachine(socket, KEY, signal) }, limit())
  }

  /** Saves the machine and resumes it after some time, with the guest repaired. */
  async freeze(ms: number): Promise<void> {
    for (let suspends = 1; !(await this.#isSuspended()); suspends++)
      if (suspends === MOST_SUSPENDS) throw new Error(`not suspended in ${suspends} attempts`)
    await delay(ms)
    const request = { properties: { key: KEY }, saved: { name: KEY } }
    await this.#calls.ensureInstance(EnsureInstanceRequest.fromPartial(request))
    await this.#calls.deleteSaved({ name: KEY })
  }

  async close(): Promise<void> {
    await this.#client?.instances.remove({ key: KEY }).catch(() => {})
    await this.#client?.instances.deleteSaved({ name: KEY }).catch(() => {})
    this.#client?.close()
    if (this.#daemon === undefined) return
    await endChild(this.#daemon)
    const left = leftovers(this.#state)
    removeTemporaryFolder(this.#folder)
    if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`)
  }

  async #isSuspended(): Promise<boolean> {
    try {
      await this.#calls.suspendInstance({ key: KEY, name: KEY })
      return true
    } catch (error) {
      if (!(error instanceof AgentError) || !error.message.includes('step detach')) throw error
      return false
    }
  }

  get #state(): string {
    return join(this.#folder, 'state')
  }

  get #calls() {
    if (this.#client === undefined) throw new Error('not booted')
    return this.#client.instances
  }
}
