import { fromNodeError, succeeded } from './errors.ts'
import type { Native } from './native.ts'
import type { Network, System } from './os.ts'

/** This process, and the name of the machine. */
export function linuxSystem(native: Native): System {
  return {
    signal(pid, signal) {
      try {
        process.kill(pid, signal)
      } catch (error) {
        throw fromNodeError('kill', `pid ${pid}`, error)
      }
    },
    setOpenFileLimit(limit) {
      succeeded('set the limit of open files to', `${limit}`, native.setFileLimit(limit, limit))
    },
    setUmask(mask) {
      process.umask(mask)
    },
    setHostname(name) {
      succeeded('sethostname', name, native.setHostname(name))
    },
    onSignal(signal, handler) {
      process.on(signal, handler)
      return () => process.off(signal, handler)
    },
    pid: process.pid,
    architecture: process.arch,
  }
}

/** The interfaces of this process's network namespace. */
export function linuxNetwork(native: Native): Network {
  return {
    setInterfaceUp(name) {
      succeeded('bring up', name, native.setInterfaceUp(name))
    },
    setInterfaceAddress(name, address, mask) {
      succeeded(`set the address ${address} of`, name, native.setInterfaceAddress(name, address))
      succeeded(`set the mask ${mask} of`, name, native.setInterfaceNetmask(name, mask))
    },
  }
}
