import { constants, createCipheriv, createPublicKey, publicEncrypt } from 'node:crypto'
import { connect, type Socket } from 'node:net'

/** The outcomes of a screen's authentication, after which nothing is asked of it. */
export type Entered = 'let in' | 'refused'

/** Authenticates to a screen by VNC (RFC 6143, 7.1 and 7.2.2). */
export async function enterVnc(path: string, password: string): Promise<Entered> {
  const { read, socket } = await open(path)
  try {
    await read(12)
    socket.write('RFB 003.008\n')
    const [count = 0] = await read(1)
    const types = [...(await read(count))]
    if (types.includes(1)) return 'let in'
    socket.write(Buffer.from([2]))
    const challenge = await read(16)
    // The bits of each byte of the key are mirrored. Three equal keys of triple DES are plain DES.
    const key = Buffer.alloc(8)
    key.write(password, 'latin1')
    for (const [index, byte] of key.entries()) key[index] = mirrored(byte)
    const cipher = createCipheriv('des-ede3-ecb', Buffer.concat([key, key, key]), null)
    socket.write(cipher.setAutoPadding(false).update(challenge))
    return (await read(4)).readUInt32BE(0) === 0 ? 'let in' : 'refused'
  } finally {
    socket.destroy()
  }
}

function mirrored(byte: number): number {
  return Number.parseInt(byte.toString(2).padStart(8, '0').split('').reverse().join(''), 2)
}

/** Authenticates to a screen by spice (spice-protocol, spice/protocol.h). */
export async function enterSpice(path: string, password: string): Promise<Entered> {
  const { read, socket } = await open(path)
  try {
    const message = Buffer.alloc(16 + 22)
    message.write('REDQ', 0, 'latin1')
    for (const [index, value] of [2, 2, 22].entries()) message.writeUInt32LE(value, 4 + 4 * index)
    // The main channel of a new session, which is offered authentication by spice itself.
    message.writeUInt8(1, 20)
    message.writeUInt32LE(1, 22)
    message.writeUInt32LE(18, 30)
    message.writeUInt32LE(0b11, 34)
    socket.write(message)
    const header = await read(16)
    const reply = await read(header.readUInt32LE(12))
    const publicKey = createPublicKey({ key: reply.subarray(4, 4 + 162), format: 'der', type: 'spki' })
    const ticket = publicEncrypt(
      { key: publicKey, padding: constants.RSA_PKCS1_OAEP_PADDING, oaepHash: 'sha1' },
      Buffer.from(`${password}\0`),
    )
    const mechanism = Buffer.alloc(4)
    mechanism.writeUInt32LE(1)
    socket.write(Buffer.concat([mechanism, ticket]))
    return (await read(4)).readUInt32LE(0) === 0 ? 'let in' : 'refused'
  } finally {
    socket.destroy()
  }
}

async function open(path: string) {
  const socket: Socket = connect(path)
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  const chunks = socket.iterator({ destroyOnReturn: false })
  let got = Buffer.alloc(0)
  const read = async (bytes: number): Promise<Buffer> => {
    while (got.length < bytes) {
      const { done, value } = await chunks.next()
      if (done) throw new Error(`${path}: closed after ${got.length} of ${bytes} bytes`)
      got = Buffer.concat([got, value])
    }
    const wanted = got.subarray(0, bytes)
    got = got.subarray(bytes)
    return wanted
  }
  return { read, socket }
}
