import { rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { LineSplitter } from '../../../../src/host/qemu/qmp/message.ts'

type Arguments = Readonly<Record<string, unknown>>

/** A stand-in of QEMU that speaks QMP on a real socket, to one client at a time, and behaves as QEMU does when paused. */
export class FakeQemu {
  readonly nodes = new Map<
    string,
    { readonly file: string; readonly size: number; readonly isRaw: boolean }
  >()
  readonly devices = new Set<string>()
  readonly commands: string[] = []
  /** Commands that get no answer. */
  readonly ignored = new Set<string>()
  /** Errors by command. */
  readonly failures = new Map<string, string>()
  /** Whether the guest reacts to the power button, and to requests to let devices go. */
  isPolite = true
  isRunning = false
  /** The resets that the guest has seen: a guest that has not run since the last one sees no other. */
  resets = 0
  #hasRun = false
  /** Its memory has gone into a file, or to another host. */
  isSaved = false
  /** Whether a command is the last of its client, which dies before or after it is carried out. */
  isLast: () => 'before' | 'after' | undefined = () => undefined
  /** Called once a network has gone, with its tap. */
  onNetworkGone: () => void = () => {}
  readonly #server: Server
  readonly #leaving = new Set<string>()
  readonly #onExit: () => void
  #client: Socket | undefined

  /** Listens at a path, or on a descriptor that listens already. */
  constructor(place: string | { readonly fd: number }, onExit: () => void) {
    this.#onExit = onExit
    if (typeof place === 'string') rmSync(place, { force: true })
    this.#server = createServer((socket) => this.#serve(socket)).listen(place)
  }

  /** Writes raw text to the client. */
  write(text: string): void {
    this.#client?.write(text)
  }

  emit(event: string, data: Arguments = {}): void {
    this.write(`${JSON.stringify({ event, data, timestamp: { seconds: 0, microseconds: 0 } })}\n`)
  }

  end(): void {
    this.#client?.destroy()
    this.#server.close()
    this.#onExit()
  }

  /** The guest lets go what it was asked to. */
  letGo(): void {
    for (const device of this.#leaving) {
      this.devices.delete(device)
      this.emit('DEVICE_DELETED', { device, path: `/machine/peripheral/${device}` })
    }
    this.#leaving.clear()
  }

  #serve(socket: Socket): void {
    this.#client = socket
    const lines = new LineSplitter()
    socket.on('error', () => {})
    let isDeaf = false
    socket.on('data', (chunk) => {
      for (const line of isDeaf ? [] : lines.push(chunk)) {
        const last = this.isLast()
        if (last !== undefined) {
          isDeaf = true
          this.#client = undefined
        }
        if (last !== 'before') this.#answer(JSON.parse(line))
      }
    })
    if (!this.ignored.has('greeting'))
      this.write(`${JSON.stringify({ QMP: { version: { qemu: { major: 7, minor: 2, micro: 22 } } } })}\n`)
  }

  #answer({ execute, arguments: args, id }: { execute: string; arguments: Arguments; id: number }): void {
    this.commands.push(execute)
    if (this.ignored.has(execute)) return
    try {
      const failure = this.failures.get(execute)
      if (failure !== undefined) throw new Error(failure)
      const value = this.#execute(execute, args)
      this.write(`${JSON.stringify({ return: value, id })}\n`)
    } catch (error) {
      this.write(`${JSON.stringify({ error: { class: 'GenericError', desc: String(error) }, id })}\n`)
    }
  }

  #execute(command: string, args: Arguments): unknown {
    switch (command) {
      case 'query-status':
        return {
          running: this.isRunning,
          status: this.isRunning ? 'running' : this.isSaved ? 'postmigrate' : 'paused',
        }
      case 'cont':
      case 'stop':
        this.isRunning = command === 'cont'
        this.isSaved &&= !this.isRunning
        this.#hasRun ||= this.isRunning
        this.emit(this.isRunning ? 'RESUME' : 'STOP')
        return {}
      case 'system_reset':
        if (this.#hasRun) this.resets += 1
        this.#hasRun = this.isRunning
        this.emit('RESET', { guest: false, reason: 'host-qmp-system-reset' })
        this.letGo()
        return {}
      case 'system_powerdown':
        if (this.isPolite) {
          this.emit('SHUTDOWN', { guest: true, reason: 'guest-shutdown' })
          setImmediate(() => this.end())
        }
        return {}
      case 'device_add':
        this.devices.add(String(args.id))
        return {}
      case 'device_del':
        return this.#remove(String(args.id))
      case 'netdev_add':
        if (args.type === 'stream') this.emit('NETDEV_STREAM_CONNECTED', { 'netdev-id': args.id })
        return {}
      case 'netdev_del':
        this.onNetworkGone()
        return {}
      case 'qom-list':
        return [...this.devices].map((name) => ({ name, type: 'child<device>' }))
      case 'x-query-virtio-status':
        return { 'vhost-started': true }
      case 'migrate':
      case 'migrate-incoming':
        this.isSaved = command === 'migrate'
        this.emit('MIGRATION', { status: 'completed' })
        return {}
      case 'query-block-jobs':
        return []
      case 'x-debug-query-block-graph':
        return { nodes: [], edges: [] }
      default:
        return this.#executeOnBlocks(command, args)
    }
  }

  #remove(id: string): unknown {
    if (!this.devices.has(id)) throw new Error(`Device '${id}' not found`)
    this.#leaving.add(id)
    if (this.isPolite) setImmediate(() => this.letGo())
    return {}
  }

  #executeOnBlocks(command: string, args: Arguments): unknown {
    switch (command) {
      case 'query-named-block-nodes':
        return [...this.nodes].map(([name, { file, size }]) => ({
          'node-name': name,
          file,
          ro: false,
          image: { 'virtual-size': size },
        }))
      case 'blockdev-add': {
        const { driver, filename, file } = args as { driver: string; filename?: string; file?: string }
        const path = filename ?? this.nodes.get(file ?? '')?.file ?? ''
        this.nodes.set(String(args['node-name']), { file: path, size: sizeOf(path), isRaw: driver === 'raw' })
        return {}
      }
      case 'blockdev-reopen': {
        const [options] = args.options as readonly { 'node-name': string; file: string }[]
        const below = this.nodes.get(options?.file ?? '')
        if (options === undefined || below === undefined) throw new Error('Cannot find the node')
        this.nodes.set(options['node-name'], { ...below, isRaw: true })
        return {}
      }
      case 'blockdev-del':
        if (!this.nodes.delete(String(args['node-name']))) throw new Error('Failed to find node')
        return {}
      default:
        return {}
    }
  }
}

/** Files of the fake world say their size by their name: `disk-64M`. */
function sizeOf(path: string): number {
  return Number(/-(\d+)M$/.exec(path)?.[1] ?? 16) * 2 ** 20
}
