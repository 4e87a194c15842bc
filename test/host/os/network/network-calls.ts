import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { errnoOf, messageOf } from '../../../../src/base/errors.ts'
import { loadNative } from '../../../../src/os/native.ts'
import { linuxNetwork } from '../../../../src/os/network/linux-network.ts'

// node network-calls.ts ADDON < CALLS: makes calls of `Network`, given as JSON `[[name, ...arguments], …]`, in its network
// namespace, and prints the results as JSON.
const [, , addon = ''] = process.argv
const network = linuxNetwork(loadNative(dirname(addon)))
const calls: [keyof typeof network, ...unknown[]][] = JSON.parse(readFileSync(0, 'utf8'))
const results = calls.map(([name, ...args]) => {
  try {
    return Reflect.apply(network[name], network, args) ?? null
  } catch (error) {
    return { message: messageOf(error), errno: errnoOf(error) }
  }
})
process.stdout.write(JSON.stringify(results))
