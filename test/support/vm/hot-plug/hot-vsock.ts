import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { isListening } from '../../../../src/host/instance/machine/await-socket.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { findVsockDaemon } from '../../../../src/host/qemu/vsock/choose-link.ts'
import { qemuId, specKey } from '../../../../src/host/spec/spec-key.ts'
import { endChild, processesIn } from '../../processes.ts'
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
    // As for a device that leaves for good (src/host/instance/devices/plug.ts).
    await this.#endDaemon()
    await unplugVsock(qmp, this.#id, gone)
  }

  async plug(): Promise<void> {
    this.#count += 1
    const { qmp, gone } = this.#guest.guest.vm
    const place = {
      ...{ id: this.#id, bus: qemuId(PORT), cid: 3 + this.#count, path: this.path },
      socket: join(this.#guest.folder, `vsock-${this.#count}.sock`),
    }
    this.#daemon = await plugVsock(qmp, place, gone)
  }

  /** Where the host listens for a port of the guest, with `_PORT` appended. */
  get path(): string {
    return this.#count === 0 ? guestSocketIn(this.#guest.folder) : this.#pathOf(this.#count)
  }

  /** The {@link path} after the next plug. */
  get nextPath(): string {
    return this.#pathOf(this.#count + 1)
  }

  #pathOf(count: number): string {
    return join(this.#guest.folder, `guest-${count}.sock`)
  }

  async end(): Promise<void> {
    if (this.#daemon !== undefined) await endChild(this.#daemon)
  }

  /** The first one belongs to the guest's machine. */
  async #endDaemon(): Promise<void> {
    if (this.#daemon !== undefined) return await endChild(this.#daemon)
    const ofMachine = () =>
      processesIn(this.#guest.folder).find(({ words }) => words.includes('/vhost-device-vsock '))
    const pid = ofMachine()?.pid
    if (pid !== undefined) process.kill(pid, 'SIGKILL')
    await expect.poll(ofMachine).toBeUndefined()
  }
}

interface VsockPlace {
  readonly id: string
  readonly bus: string
  readonly cid: number
  /** Between QEMU and the daemon. */
  readonly socket: string
  /** Where the host listens for a port of the guest, with `_PORT` appended. */
  readonly path: string
}

/** Plugs a vsock device in. Resolves with its new daemon. */
export async function plugVsock(
  qmp: QmpClient,
  { bus, cid, id, path, socket }: VsockPlace,
  signal: AbortSignal,
): Promise<ChildProcess> {
  for (const file of [socket, path]) rmSync(file, { force: true })
  const program = await findVsockDaemon(() => {})
  // As in src/host/instance/machine/daemon-steps.ts: the daemon drops packets that are too long.
  const vm = `guest-cid=${cid},socket=${socket},uds-path=${path},tx-buffer-size=28672`
  const daemon = spawn(program, ['--vm', vm], { stdio: 'ignore' })
  await once(daemon, 'spawn')
  while (!(await isListening(daemon.pid ?? 0, socket))) {
    if (daemon.exitCode !== null) throw new Error(`${program} ended`)
    await sleep(5)
  }
  const command = (execute: string, args: Readonly<Record<string, unknown>>) =>
    qmp.command({ execute, arguments: args }, signal)
  const addr = { type: 'unix', data: { path: socket } }
  await command('chardev-add', {
    id: chardevOf(id),
    backend: { type: 'socket', data: { addr, server: false } },
  })
  await command('device_add', { driver: 'vhost-user-vsock-pci', id, chardev: chardevOf(id), bus })
  return daemon
}

/** Takes a vsock device away from a guest, with a daemon that has ended or goes on. */
export async function unplugVsock(qmp: QmpClient, id: string, signal: AbortSignal): Promise<void> {
  const deleted = qmp.event(({ name, data }) => name === 'DEVICE_DELETED' && data.device === id, signal)
  await qmp.command({ execute: 'device_del', arguments: { id } }, signal)
  await deleted
}

function chardevOf(id: string): string {
  return `chardev-${id}`
}
