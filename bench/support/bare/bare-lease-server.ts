import { readFileSync } from 'node:fs'
import { Server, ServerCredentials, type ServerWritableStream } from '@grpc/grpc-js'
import {
  RunLeaseUpdate,
  RunLeaseUpdate_Status as Status,
  VMControllerDefinition,
} from '../../../src/gen/vm.ts'

/** Answers RunLease at port 1 of loopback, with TLS by the files of arguments 2 to 4, and says no more. Prints when it is ready. */
const [, , port = '', ca = '', cert = '', key = ''] = process.argv
const { fullName, methods } = VMControllerDefinition
const ANSWER = Buffer.from(
  RunLeaseUpdate.encode(RunLeaseUpdate.fromPartial({ status: Status.STATUS_OK })).finish(),
)

const same = (message: Buffer) => message
const server = new Server()
const answer = (call: ServerWritableStream<Buffer, Buffer>) => void call.write(ANSWER)
server.register(`/${fullName}/${methods.runLease.name}`, answer, same, same, 'serverStream')
const pair = { cert_chain: readFileSync(cert), private_key: readFileSync(key) }
const credentials = ServerCredentials.createSsl(readFileSync(ca), [pair], true)
server.bindAsync(`127.0.0.1:${port}`, credentials, () => process.stdout.write('up\n'))
// An ordinary exit writes the compile cache.
process.once('SIGTERM', () => process.exit())
