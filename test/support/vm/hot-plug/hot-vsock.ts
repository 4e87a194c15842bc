import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { findVsockDaemon } from '../../../../src/host/qemu/vsock/choose-link.ts'
import { qemuId, specKey } from '../../../../src/host/spec/spec-key.ts'
import { endChild } from '../../processes.ts'
import type { TestGuest, TestGuestOptions } from '../boot-guest.ts'
import { guestSocketIn } from '../dial-guest.ts'

const [PORT, DEVICE, DAEMON] = [specKey('hot-port'), specKey('hot-vsock'), specKey('hot-daemon')]

/** A guest whose agent is reached by TCP, beside a vsock device that can be unplugged. */
export const HOT_VSOCK: Pick<TestGuestOptions, 'vsock' | 'extra'> = {
  vsock: 'tcp',
  extra: {
    devices: {
      [PORT]: { kind: 'root-port', slot: 9 },
      [DEVICE]: { kind: 'vsock', slot: 0, port: PORT, cid: 3, backend: DAEMON },
    },
    backends: { [DAEMON]: { kind: 'vsock-daemon' } },
  },
}

/** The vsock device of a guest with {@link HOT_VSOCK}, each time with another daemon and another context id. */
export class HotVsock {
  readonly #guest: TestGuest
  #daemon: ChildProcess | undefined
  #count = 0

  constructor(guest: TestGuest) {
    this.#guest = guest
  }

  get #id(): string {
    return this.#count === 0 ? qemuId(DEVICE) : `hot-vsock-${this.#count}`
  }

  async unplug(): Promise<void> {
    const { qmp, gone } = this.#guest.guest.vm
    const deleted = qmp.event(({ name, data }) => name === 'DEVICE_DELETED' && data.device === this.#id, gone)
    await qmp.execute('device_del', { id: this.#id }, gone)
    await deleted
    if (this.#daemon !== undefined) await endChild(this.#daemon)
  }

  async plug(): Promise<void> {
    this.#count += 1
    const { qmp, gone } = this.#guest.guest.vm
    const socket = join(this.#guest.folder, `vsock-${this.#count}.sock`)
    const program = await findVsockDaemon(() => {})
    const path = this.path
    // As in src/host/instance/machine/daemon-steps.ts: the daemon drops packets that are too long.
    const vm = `guest-cid=${3 + this.#count},socket=${socket},uds-path=${path},tx-buffer-size=28672`
    this.#daemon = spawn(program, ['--vm', vm], { stdio: 'ignore' })
    await once(this.#daemon, 'spawn')
    while (!existsSync(socket)) await sleep(10)
    const id = `chardev-${this.#count}`
    const backend = {
      type: 'socket',
      data: { addr: { type: 'unix', data: { path: socket } }, server: false },
    }
    // A command that only this test gives.
    await qmp.execute('chardev-add' as never, { id, backend } as never, gone)
    const device = { driver: 'vhost-user-vsock-pci', id: this.#id, chardev: id, bus: qemuId(PORT) }
    await qmp.execute('device_add', device, gone)
  }

  /** Where the host listens for a port of the guest, with `_PORT` appended. */
  get path(): string {
    return this.#count === 0
      ? guestSocketIn(this.#guest.folder)
      : join(this.#guest.folder, `guest-${this.#count}.sock`)
  }

  async end(): Promise<void> {
    if (this.#daemon !== undefined) await endChild(this.#daemon)
  }
}
