import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { tool } from '../../../../src/build/tool.ts'
import { connectAgent } from '../../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../../src/client/container/container-session.ts'
import { connectMachine } from '../../../../src/client/daemon/connect-machine.ts'
import type { Specification } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { specKey } from '../../../../src/host/spec/spec-key.ts'
import { ensureContainerRoot } from '../../../../src/image/container-root.ts'
import { daemonClient } from '../../host-wing/running-daemon.ts'
import { progress } from '../../vm/boot-guest.ts'
import { savableGuest } from '../../vm/daemon-guest.ts'
import { createPod } from '../../vm/guest-pod.ts'

const CONTAINER = 'journal'
/** In the guest: the slots of its disks, and the program of pod-journal.c. */
const [ROOT_SLOT, JOURNAL_SLOT, PROGRAM] = ['05', 6, '/bin/pod-journal']
const BOOT_MS = 120_000

/** A Linux guest with an agent, of which a container keeps the journal, and prints it to a port. */
export class JournalPod {
  readonly #disks: string
  readonly #journal: string
  #port = 0
  /** What it has printed in earlier boots, and in all, as far as it was read. */
  #earlier = ''
  #read = ''

  constructor(disks: string, journal: string) {
    this.#disks = disks
    this.#journal = journal
  }

  async specification(): Promise<Specification> {
    const root = join(this.#disks, 'pod-root')
    copyFileSync(await ensureContainerRoot(progress), root)
    const program = join(this.#disks, 'pod-journal')
    const source = join(import.meta.dirname, 'pod-journal.c')
    const words = ['-static', '-O2', '-Wall', '-Werror', '-o', program, source]
    await tool('gcc', words, { debianPackage: 'gcc' })
    const write = `write ${program} ${PROGRAM}`
    await tool('debugfs', ['-w', '-R', write, root], { debianPackage: 'e2fsprogs' })
    const backend = specKey('journal-file')
    return await savableGuest(root, {
      extra: {
        devices: { [specKey('journal')]: { kind: 'disk', slot: JOURNAL_SLOT, serial: 'journal', backend } },
        backends: { [backend]: { kind: 'file', path: this.#journal, access: 'read-write' } },
      },
    })
  }

  /** Starts the container in a guest that boots. `socket` is of its daemon. */
  async begin(key: string, socket: string): Promise<void> {
    const connect = (each: AbortSignal) => connectMachine(socket, key, each)
    const connection = await connectAgent({ connect }, AbortSignal.timeout(BOOT_MS))
    const client = daemonClient(socket)
    try {
      const pod = await createPod(agentOf(connection), ROOT_SLOT)
      const stream = { key, container: CONTAINER, exec: '', stream: 'stdout' }
      const { port } = await client.instances.allocatePort(stream)
      this.#earlier = this.#read
      this.#port = port
      const path = '/dev/journal'
      await pod.run(CONTAINER, [PROGRAM, path], {
        ports: { stdoutPort: port },
        devices: [{ type: 'blk', id: `0${JOURNAL_SLOT}`, vmPath: '/dev/vdx', containerPath: path }],
        linux: { Devices: [{ Path: path, Type: 'b', Major: 8n, Minor: 0n, FileMode: 0o660 }] },
      })
    } finally {
      client.close()
      connection.close()
    }
  }

  /** All lines that are known of all boots. */
  async printed(folder: string): Promise<Pick<Awaited<ReturnType<typeof readRing>>, 'bytes' | 'first'>> {
    const { bytes, first } = await readRing(folder, this.#port)
    const text = bytes.toString('latin1')
    this.#read = this.#earlier + text.slice(0, text.lastIndexOf('\n') + 1)
    return { bytes: Buffer.from(this.#read, 'latin1'), first }
  }
}
